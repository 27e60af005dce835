package imagescmd

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"millrace/cmd/internal/cli"
	"millrace/images"
	"millrace/images/control"
	"millrace/internal/config"
)

// imageStats are the statistics of each image route of a running server.
func imageStats(ctx context.Context, r *cli.Server) (stats map[string]images.Stats, err error) {
	return stats, r.List(ctx, control.Prefix, "images", &stats)
}

// clean makes a running server remove variants without an original.
func clean(ctx context.Context, r *cli.Server) (done map[string]images.CleanedUp, err error) {
	return done, r.Post(ctx, control.Clean, "images", &done)
}

// theImageServer is the running server that converts images.
func theImageServer(ctx context.Context, f cli.Flags, verb string) (*cli.Server, map[string]images.Stats, error) {
	all, err := imageServers(ctx, f)
	if err != nil {
		return nil, nil, err
	}
	hint := fmt.Sprintf("name the folder: `millrace images %s DIR`", verb)
	switch {
	case len(all) == 0:
		return nil, nil, cli.Failure(errors.New("no running server that converts images was found"), hint+"; or say where the server is: --admin ADDR")
	case len(all) > 1:
		var at []string
		for _, one := range all {
			at = append(at, one.At)
		}
		return nil, nil, cli.Failure(fmt.Errorf("%d servers that convert images run here", len(all)), hint+", or say which is meant:"+cli.Choices(ctx, at))
	}
	return all[0].Server, all[0].stats, nil
}

// imageServer is a server with what it says of its images.
type imageServer struct {
	*cli.Server
	stats map[string]images.Stats // by route
}

// imageServers are those that run here and convert images, or the one that
// was named.
func imageServers(ctx context.Context, f cli.Flags) (all []imageServer, err error) {
	found, named, err := f.All(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range found {
		stats, err := imageStats(ctx, r)
		switch {
		case err != nil && named:
			return nil, err
		case err == nil && len(stats) > 0: // else it ends just now, or is another user's
			all = append(all, imageServer{r, stats})
		}
	}
	return all, nil
}

// having is the running server that stores variants in a folder, with the
// statistics of those routes; nil if no server can be asked.
func having(ctx context.Context, f cli.Flags, dir string) (*cli.Server, map[string]images.Stats, error) {
	all, err := imageServers(ctx, f)
	for _, one := range all {
		maps.DeleteFunc(one.stats, func(_ string, s images.Stats) bool { return s.Folder != dir })
		if len(one.stats) > 0 {
			return one.Server, one.stats, nil
		}
	}
	return nil, nil, err
}

// Place says which folder a verb is about.
type Place struct {
	Dir    string `arg:"" optional:"" complete:"dir" help:"The folder with the images. Default: the running server's."`
	Config string `short:"c" placeholder:"FILE" complete:"file" help:"The folders that this config serves with images."`
	Store  string `placeholder:"DIR" complete:"dir" env:"MILLRACE_IMAGES_STORE" help:"The folder for what is converted, if it is not the usual one."`
}

// folders are the folders that the command line names; none: the running
// server's. What a folder is served with does not matter here.
func (p Place) folders() ([]imageFolder, error) {
	switch {
	case p.Dir != "" && p.Config != "":
		return nil, cli.Usage("a folder and a config: only one of them can be given", "leave one of them out")
	case p.Config != "":
		cfg, err := config.Load(p.Config)
		if err != nil {
			return nil, cli.BadConfig(p.Config, err)
		}
		all, err := imageFolders(cfg)
		if err == nil && len(all) == 0 {
			err = cli.Failure(fmt.Errorf("%s serves no folder with images", p.Config), "write \"images: on\" beside a route's \"static:\"")
		}
		return all, err
	case p.Dir != "":
		a, err := newImageFolder(*config.ForDir(p.Dir).Sites[0].Routes["/"].Static, images.Options{Store: p.Store})
		return []imageFolder{a}, err
	}
	return nil, nil
}
