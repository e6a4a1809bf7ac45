// The parts of Argo CD that read Git and apply objects, without its server, UI and command line. One program; the name
// that it is called by picks the part. argocd-cache speaks Redis' protocol from memory: Argo CD keeps only what it can
// compute again there, so the tests need no Redis.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/alicebob/miniredis/v2"
	controller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	askpass "github.com/argoproj/argo-cd/v3/cmd/argocd-git-ask-pass/commands"
	reposerver "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
	"github.com/argoproj/argo-cd/v3/util/log"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// cache serves until it is told to end: argocd-cache ADDRESS
func cache() *cobra.Command {
	return &cobra.Command{Use: "argocd-cache ADDRESS", Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, arguments []string) error {
		server := miniredis.NewMiniRedis()
		if err := server.StartAddr(arguments[0]); err != nil {
			return err
		}
		defer server.Close()
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
		<-ended
		return nil
	}}
}

func main() {
	klog.SetLogger(log.NewLogrusLogger(log.NewWithCurrentConfig()))
	parts := map[string]func() *cobra.Command{
		"argocd-application-controller": controller.NewCommand,
		"argocd-repo-server":            reposerver.NewCommand,
		"argocd-git-ask-pass":           askpass.NewCommand,
		"argocd-cache":                  cache,
	}
	part, known := parts[filepath.Base(os.Args[0])]
	if !known {
		fmt.Fprintln(os.Stderr, "argocd: no part of this name:", os.Args[0])
		os.Exit(2)
	}
	command := part()
	command.SilenceErrors = true
	if err := command.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
