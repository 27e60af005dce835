package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"millrace/internal/config"
	"millrace/internal/server"
	"millrace/store"
)

// Check builds everything that cfg asks for, as New does, and closes it again: what
// a server would refuse is an error here, in the same words. No address is bound,
// no other machine's store or broker is opened, and what a server writes (logs, caches,
// variants, certificates) is written into a folder for temporary files, so that a
// server may run beside. worker is as in [Options].
func Check(cfg *config.Config, worker []string) (err error) {
	if err := writes(cfg); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "millrace-check-*")
	if err != nil {
		return fmt.Errorf("making a folder for temporary files: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	discard := slog.New(slog.DiscardHandler)
	s := newServer(aside(cfg, dir), Options{ErrorLog: discard, Worker: worker})
	g, err := s.build(s.config, nil)
	if err != nil {
		return err
	}
	return errors.Join(server.Check(g.setup, discard), g.close(nil))
}

// aside changes a config so that its server writes below dir alone, and contacts no other
// machine.
func aside(cfg *config.Config, dir string) *config.Config {
	n := 0
	own := func() string { n++; return filepath.Join(dir, strconv.Itoa(n)) }
	next := *cfg
	if next.Log.Format != config.Off && next.Log.To == "" {
		next.Log.File = own()
	}
	next.Admin.Listen = config.Off
	next.TLS.Tickets.Shared = store.Shared{}
	if next.TLS.Auto != nil {
		auto := *next.TLS.Auto
		auto.Storage = own()
		next.TLS.Auto = &auto
	}
	next.Sites = slices.Clone(cfg.Sites)
	for i := range next.Sites {
		s := &next.Sites[i]
		if s.RateLimit != nil {
			limit := *s.RateLimit
			limit.Shared, s.RateLimit = store.Shared{}, &limit
		}
		s.Routes = maps.Clone(s.Routes)
		for pattern, r := range s.Routes {
			s.Routes[pattern] = routeAside(r, own)
		}
	}
	return &next
}

func routeAside(r config.Route, own func() string) config.Route {
	if r.RateLimit != nil {
		limit := *r.RateLimit
		limit.Shared, r.RateLimit = store.Shared{}, &limit
	}
	if r.Cache != nil {
		o := *r.Cache
		if o.Shared, o.Coalesce = (store.Shared{}), ""; o.Disk != "" {
			o.Disk = own()
		}
		r.Cache = &o
	}
	if r.Images != nil {
		o := *r.Images
		o.Shared, o.Store = "", own()
		r.Images = &o
	}
	if r.WebSocket != nil && r.WebSocket.Channels != nil {
		o, channels := *r.WebSocket, *r.WebSocket.Channels
		channels.Bus, channels.BusName, channels.BusReplicas, o.Channels = "", "", 0, &channels
		r.WebSocket = &o
	}
	return r
}

// writes checks that a server could write the log and the folders that cfg names.
func writes(cfg *config.Config) error {
	if o := cfg.Log; o.Format != config.Off && o.To == "" && o.File != "" && o.File != "-" {
		if err := appendable(o.File); err != nil {
			return fmt.Errorf("the access log: %w", err)
		}
	}
	r := &reach{}
	r.stores(cfg)
	for _, rule := range r.rules {
		if !rule.Make {
			continue // made where it is needed
		}
		if err := writable(rule.Path); err != nil {
			return fmt.Errorf("%s: %w", rule.For, err)
		}
	}
	return nil
}

// appendable is nil for a file that can be written, or made in its folder.
func appendable(file string) error {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Dir(file)); err != nil {
			return err //nolint:wrapcheck // it names the folder
		}
		return writable(filepath.Dir(file))
	case err != nil:
		return err //nolint:wrapcheck // it names the file
	case !info.Mode().IsRegular() && !info.IsDir():
		return nil // opening a pipe waits for its reader
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err //nolint:wrapcheck // it names the file
	}
	return f.Close() //nolint:wrapcheck // it names the file
}

// writable is nil for a folder in which files can be made, or that can be made.
func writable(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
		if _, err := os.Lstat(dir); err == nil {
			return fmt.Errorf("%s is a link that leads nowhere", dir)
		}
		return writable(filepath.Dir(dir))
	}
	if err != nil {
		return err //nolint:wrapcheck // it names the path
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is a file, not a folder", dir)
	}
	f, err := os.CreateTemp(dir, ".millrace-check-*")
	if err != nil {
		return fmt.Errorf("files cannot be written into %s: %w", dir, errors.Unwrap(err))
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
