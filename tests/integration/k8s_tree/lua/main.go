// Runs a Lua health check as Argo CD does: the same interpreter, and of its libraries only those that Argo CD opens for a
// script without `useOpenLibs` (package, base, table; no string, no math). `lua FILE` reads a list of objects as JSON
// from standard input and prints a list of what the script returned for each.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	lua "github.com/yuin/gopher-lua"
)

func toLua(state *lua.LState, value any) lua.LValue {
	switch found := value.(type) {
	case nil:
		return lua.LNil
	case bool:
		return lua.LBool(found)
	case float64:
		return lua.LNumber(found)
	case string:
		return lua.LString(found)
	case []any:
		table := state.NewTable()
		for _, one := range found {
			table.Append(toLua(state, one))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for key, one := range found {
			table.RawSetString(key, toLua(state, one))
		}
		return table
	}
	panic(fmt.Sprintf("no Lua value for %T", value))
}

func health(script string, object any) (map[string]string, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	state.SetContext(limit)
	libraries := map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
	}
	for name, open := range libraries {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			return nil, err
		}
	}
	state.SetGlobal("obj", toLua(state, object))
	if err := state.DoString(script); err != nil {
		return nil, err
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return nil, fmt.Errorf("the script returned a %s", state.Get(-1).Type())
	}
	found := map[string]string{}
	table.ForEach(func(key, value lua.LValue) { found[key.String()] = value.String() })
	return found, nil
}

func main() {
	script, err := os.ReadFile(os.Args[1])
	var objects []any
	if err == nil {
		err = json.NewDecoder(os.Stdin).Decode(&objects)
	}
	results := []map[string]string{}
	for _, object := range objects {
		var one map[string]string
		if err == nil {
			one, err = health(string(script), object)
			results = append(results, one)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(results)
}
