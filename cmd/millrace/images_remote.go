package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"millrace/images"
	"millrace/internal/admin"
	"millrace/internal/config"
)

// imagesPath is where the admin listener tells of pictures.
const imagesPath = "/images/"

// pictures is what a running server says of the pictures of each route.
func (r *remote) pictures(ctx context.Context) (stats map[string]images.Stats, err error) {
	return stats, r.list(ctx, imagesPath, "pictures", &stats)
}

// tidy has a running server remove what has no original.
func (r *remote) tidy(ctx context.Context) (done map[string]images.Tidied, err error) {
	return done, r.post(ctx, imagesPath+"clean", "pictures", &done)
}

// pictureServer is the running server that converts pictures.
func (f remoteFlags) pictureServer(ctx context.Context, verb string) (*remote, map[string]images.Stats, error) {
	all, err := f.pictureServers(ctx)
	if err != nil {
		return nil, nil, err
	}
	hint := fmt.Sprintf("name the folder: `millrace images %s DIR`", verb)
	switch {
	case len(all) == 0:
		return nil, nil, failure{errors.New("no running server that converts pictures was found"), hint + "; or say where the server is: --admin ADDR"}
	case len(all) > 1:
		var at []string
		for _, one := range all {
			at = append(at, one.at)
		}
		return nil, nil, failure{fmt.Errorf("%d servers that convert pictures run here", len(all)), hint + ", or say which is meant:" + choices(at)}
	}
	return all[0].remote, all[0].stats, nil
}

// pictureServer is a server with what it says of its pictures.
type pictureServer struct {
	*remote
	stats map[string]images.Stats // by route
}

// pictureServers are those that run here and convert pictures, or the one that
// was named.
func (f remoteFlags) pictureServers(ctx context.Context) (all []pictureServer, err error) {
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
		stats, err := r.pictures(ctx)
		switch {
		case err != nil && named:
			return nil, err
		case err == nil && len(stats) > 0: // else it ends just now, or is another user's
			all = append(all, pictureServer{r, stats})
		}
	}
	return all, nil
}

// having is the running server that keeps variants in a folder, with its routes
// that do; nil if there is none that can be asked.
func (f remoteFlags) having(ctx context.Context, dir string) (*remote, map[string]images.Stats, error) {
	all, err := f.pictureServers(ctx)
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
	Dir    string `arg:"" optional:"" complete:"dir" help:"The folder with the pictures. Default: the running server's."`
	Config string `short:"c" placeholder:"FILE" complete:"file" help:"The folders that this config serves with images."`
	Store  string `placeholder:"DIR" complete:"dir" env:"MILLRACE_IMAGES_STORE" help:"The folder for what is converted, if it is not the usual one."`
}

// albums are the folders that the command line names; none: the running
// server's. What a folder is served with does not matter here.
func (p imagesPlace) albums() ([]album, error) {
	switch {
	case p.Dir != "" && p.Config != "":
		return nil, usageError{"a folder and a config: only one of them can say which pictures are meant", "leave one of them out"}
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
