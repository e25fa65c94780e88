// Checks that a dashboard has the schema of Grafana's classic dashboards, with those of its panels and queries: every field is known and
// has its type.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func check(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	plugins.RegisterDefaultPlugins()
	parsed := dashboard.Dashboard{}
	if err := found(parsed.UnmarshalJSONStrict(raw)); err != nil {
		return err
	}
	return found(parsed.Validate())
}

// found returns an error if there is one: the generated code returns an empty list for success.
func found(err error) error {
	var list cog.BuildErrors
	if errors.As(err, &list) && len(list) == 0 {
		return nil
	}
	return err
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dashboard-check FILE")
		os.Exit(2)
	}
	if err := check(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
