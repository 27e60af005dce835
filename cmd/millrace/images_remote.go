package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"millrace/images"
	"millrace/images/control"
	"millrace/internal/admin"
	"millrace/internal/config"
)

// imageStats are the statistics of each image route of a running server.
func (r *remote) imageStats(ctx context.Context) (stats map[string]images.Stats, err error) {
	return stats, r.list(ctx, control.Prefix, "images", &stats)
}

// tidy makes a running server remove variants without an original.
func (r *remote) tidy(ctx context.Context) (done map[string]images.Tidied, err error) {
	return done, r.post(ctx, control.Clean, "images", &done)
}

// imageServer is the running server that converts images.
func (f remoteFlags) imageServer(ctx context.Context, verb string) (*remote, map[string]images.Stats, error) {
	all, err := f.imageServers(ctx)
	if err != nil {
		return nil, nil, err
	}
	hint := fmt.Sprintf("name the folder: `millrace images %s DIR`", verb)
	switch {
	case len(all) == 0:
		return nil, nil, failure{errors.New("no running server that converts images was found"), hint + "; or say where the server is: --admin ADDR"}
	case len(all) > 1:
		var at []string
		for _, one := range all {
			at = append(at, one.at)
		}
		return nil, nil, failure{fmt.Errorf("%d servers that convert images run here", len(all)), hint + ", or say which is meant:" + choices(ctx, at)}
	}
	return all[0].remote, all[0].stats, nil
}

// imageServer is a server with what it says of its images.
type imageServer struct {
	*remote
	stats map[string]images.Stats // by route
}

// imageServers are those that run here and convert images, or the one that
// was named.
func (f remoteFlags) imageServers(ctx context.Context) (all []imageServer, err error) {
	named := f.Admin != "" && f.Admin != config.Off // MILLRACE_ADMIN=off is about serving
	found := []string{string(f.Admin)}
	if !named {
		found, _ = admin.Find() // where nothing can be found out, nothing was found
	}
	for _, at := range found {
		client, base, err := admin.Client(at)
		if err != nil {
			return nil, usageError{err.Error(), ""}
		}
		r := &remote{at, base, client}
		stats, err := r.imageStats(ctx)
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
func (f remoteFlags) having(ctx context.Context, dir string) (*remote, map[string]images.Stats, error) {
	all, err := f.imageServers(ctx)
	for _, one := range all {
		maps.DeleteFunc(one.stats, func(_ string, s images.Stats) bool { return s.Folder != dir })
		if len(one.stats) > 0 {
			return one.remote, one.stats, nil
		}
	}
	return nil, nil, err
}

// imagesPlace says which folder a verb is about.
type imagesPlace struct {
	Dir    string `arg:"" optional:"" complete:"dir" help:"The folder with the images. Default: the running server's."`
	Config string `short:"c" placeholder:"FILE" complete:"file" help:"The folders that this config serves with images."`
	Store  string `placeholder:"DIR" complete:"dir" env:"MILLRACE_IMAGES_STORE" help:"The folder for what is converted, if it is not the usual one."`
}

// albums are the folders that the command line names; none: the running
// server's. What a folder is served with does not matter here.
func (p imagesPlace) albums() ([]album, error) {
	switch {
	case p.Dir != "" && p.Config != "":
		return nil, usageError{"a folder and a config: only one of them can be given", "leave one of them out"}
	case p.Config != "":
		cfg, err := config.Load(p.Config)
		if err != nil {
			return nil, badConfig(p.Config, err)
		}
		all, err := albums(cfg)
		if err == nil && len(all) == 0 {
			err = failure{fmt.Errorf("%s serves no folder with images", p.Config), "write \"images: on\" beside a route's \"static:\""}
		}
		return all, err
	case p.Dir != "":
		a, err := newAlbum(*config.ForDir(p.Dir).Sites[0].Routes["/"].Static, images.Options{Store: p.Store})
		return []album{a}, err
	}
	return nil, nil
}

// namesOf are the keys, in order.
func namesOf[T any](of map[string]T) []string { return slices.Sorted(maps.Keys(of)) }
