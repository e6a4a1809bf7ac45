"""Judges Kubernetes objects.

validate, strict, rules   whether a cluster accepts an object: its schema, the server's rules, house policies
patches                   the same of `kubernetes.patch`, when a job is read
carried, differences      whether an object, in a file or in a cluster, is what the jobs in it render to
lint, gitops              a folder of rendered jobs that Argo CD or Flux apply
files                     manifests on disk and how Kubernetes reads YAML
"""
