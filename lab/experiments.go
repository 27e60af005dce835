package lab

import (
	"context"
	"fmt"
	"strings"

	"millrace/lab/experiment"
	"millrace/lab/experiment/cache"
	"millrace/lab/experiment/embed"
	"millrace/lab/experiment/images"
	"millrace/lab/experiment/packed"
	"millrace/lab/experiment/proof"
	"millrace/lab/experiment/protocols"
	"millrace/lab/experiment/proxy"
	"millrace/lab/experiment/sendfile"
	"millrace/lab/experiment/tls"
	"millrace/lab/experiment/websocket"
	"millrace/lab/record"
)

// Experiments lists the built-in ones: first what millrace does beside its peers,
// then the doubts about published measurements. It fails where a page of
// lab/experiment/specs is not right.
func Experiments() ([]experiment.Experiment, error) {
	var all []experiment.Experiment
	for _, e := range []struct {
		name  string
		hooks func(*experiment.Run) experiment.Hooks
	}{
		{"files", nil},
		{"cache", cache.Hooks},
		{"websocket", websocket.Hooks},
		{"tls", tls.Hooks},
		{"protocols", protocols.Hooks},
		{"proxy", proxy.Hooks},
		{"latency", nil},
		{"images", images.Hooks},
		{"packed", packed.Hooks},
		{"embed-vs-disk", embed.Hooks},
		{"sendfile-paths", sendfile.Hooks},
		{"ws-echo-ramp", websocket.RampHooks},
		{"api-cache", cache.APIHooks},
		{"pgo-proof", proof.Hooks},
	} {
		made, err := experiment.New(e.name, e.hooks)
		if err != nil {
			return nil, err
		}
		all = append(all, made)
	}
	return all, nil
}

// Experiment runs one of them by name. As with Load, the result holds what was
// measured even where there is an error.
func Experiment(ctx context.Context, name string, env experiment.Env) (*record.Result, error) {
	all, err := Experiments()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range all {
		if e.Name == name {
			return e.Measure(ctx, record.KindExperiment, env)
		}
		names = append(names, e.Name)
	}
	return nil, fmt.Errorf("there is no experiment %q, only %s", name, strings.Join(names, ", "))
}
