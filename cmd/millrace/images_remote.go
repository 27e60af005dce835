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

// pictureServer is the running server, which must convert pictures.
func (f remoteFlags) pictureServer(ctx context.Context, verb string) (*remote, map[string]images.Stats, error) {
	r, err := f.remote()
	if errors.Is(err, errNoServer) {
		return nil, nil, failure{errNoServer, fmt.Sprintf("name the folder: `millrace images %s DIR`; or say where the server is: --admin ADDR", verb)}
	}
	if err != nil {
		return nil, nil, err
	}
	stats, err := r.pictures(ctx)
	if err == nil && len(stats) == 0 {
		err = failure{
			fmt.Errorf("the server at %s converts no pictures", r.at),
			fmt.Sprintf("`millrace serve DIR --images` does; for a folder that is not served now: `millrace images %s DIR`", verb),
		}
	}
	return r, stats, err
}

// having is the running server that keeps variants in a folder, nil if there is
// none that can be asked.
func (f remoteFlags) having(ctx context.Context, dir string) (*remote, map[string]images.Stats, error) {
	found := []string{string(f.Admin)}
	if f.Admin == "" || f.Admin == config.Off {
		found, _ = admin.Find() // where nothing can be found out, nothing was found
	}
	for _, at := range found {
		client, base, err := admin.Client(at)
		if err != nil {
			return nil, nil, usageError{err.Error(), ""}
		}
		r := &remote{at, base, client}
		stats, err := r.pictures(ctx)
		if err != nil {
			if f.Admin != "" && f.Admin != config.Off {
				return nil, nil, err
			}
			continue // it ends just now, or is another's
		}
		maps.DeleteFunc(stats, func(_ string, s images.Stats) bool { return s.Folder != dir })
		if len(stats) > 0 {
			return r, stats, nil
		}
	}
	return nil, nil, nil
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
