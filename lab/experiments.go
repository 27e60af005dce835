package lab

import (
	"context"
	"fmt"
	"strings"

	"millrace/lab/experiment"
	"millrace/lab/experiment/cache"
	"millrace/lab/experiment/embed"
	"millrace/lab/experiment/files"
	"millrace/lab/experiment/images"
	"millrace/lab/experiment/packed"
	"millrace/lab/experiment/protocols"
	"millrace/lab/experiment/proxy"
	"millrace/lab/experiment/sendfile"
	"millrace/lab/experiment/tls"
	"millrace/lab/experiment/websocket"
	"millrace/lab/record"
)

// Experiments lists the built-in ones: first what millrace does beside its peers,
// then the doubts about published measurements.
func Experiments() []experiment.Experiment {
	return []experiment.Experiment{
		files.Experiment(),
		cache.Experiment(),
		websocket.Experiment(),
		tls.Experiment(),
		protocols.Experiment(),
		proxy.Experiment(),
		images.Experiment(),
		packed.Experiment(),
		embed.Experiment(),
		sendfile.Experiment(),
		websocket.RampExperiment(),
		cache.APIExperiment(),
		images.PGOExperiment(),
	}
}

// Experiment runs one of them by name. As with Load, the result holds what was
// measured even where there is an error.
func Experiment(ctx context.Context, name string, env experiment.Env) (*record.Result, error) {
	var names []string
	for _, e := range Experiments() {
		if e.Name == name {
			return experiment.Run(ctx, record.KindExperiment, e, env)
		}
		names = append(names, e.Name)
	}
	return nil, fmt.Errorf("there is no experiment %q, only %s", name, strings.Join(names, ", "))
}
