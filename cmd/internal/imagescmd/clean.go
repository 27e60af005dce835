package imagescmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"millrace/cmd/internal/cli"
	"millrace/images"
	"millrace/internal/config"
)

// Clean is `millrace images clean`.
type Clean struct {
	Place `embed:""`

	All bool `help:"Remove everything that was converted. The server that has it must have been stopped."`

	cli.Flags `embed:""`
}

// Run removes orphans, through the server that has the folder if one does.
func (c *Clean) Run(s cli.Streams) error {
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	all, err := c.folders()
	switch {
	case err != nil:
		return err
	case len(all) > 0:
		for _, a := range all {
			if err := c.cleanFolder(ctx, a, s); err != nil {
				return err
			}
		}
		return nil
	case c.Store != "":
		return c.store(ctx, s)
	case c.All:
		return cli.Usage("the folder whose variants to remove is missing", "for example `millrace images clean photos --all`, with its server stopped")
	}
	r, _, err := theImageServer(ctx, c.Flags, "clean")
	if err != nil {
		return err
	}
	return cleanedBy(ctx, r, s)
}

// cleanedBy has a server do it.
func cleanedBy(ctx context.Context, r *cli.Server, s cli.Streams) error {
	done, err := clean(ctx, r)
	if err != nil {
		return err
	}
	for _, route := range slices.Sorted(maps.Keys(done)) {
		if err := printCleaned(s, route, done[route]); err != nil {
			return err
		}
	}
	return nil
}

// printCleaned says what was removed.
func printCleaned(s cli.Streams, name string, t images.CleanedUp) error {
	freed := ""
	if t.Removed > 0 {
		freed = ", " + cli.Amount(t.Bytes)
	}
	_, err := fmt.Fprintf(s.Out, "%s: removed %d of %s%s\n", name, t.Removed, cli.Count(t.Looked, "variant"), freed)
	return err
}

// cleanFolder cleans what is kept of one folder.
func (c *Clean) cleanFolder(ctx context.Context, a imageFolder, s cli.Streams) error {
	r, _, err := having(ctx, c.Flags, a.dir)
	switch {
	case err != nil:
		return err
	case r != nil && c.All:
		return cli.Failure(fmt.Errorf("the server at %s has the images of %s, and would convert them again", r.At, a.name), "stop it first")
	case r != nil:
		return cleanedBy(ctx, r, s)
	}
	if _, err := os.Stat(a.dir); errors.Is(err, fs.ErrNotExist) {
		_, err := fmt.Fprintf(s.Out, "%s: nothing is kept of it in %s\n", a.name, cli.Homely(a.dir))
		return err
	}
	if c.All {
		return a.removeAll(ctx, s)
	}
	for _, dir := range a.static.Folders() {
		if err := config.CheckDir(dir); err != nil {
			return cli.Failure(err, fmt.Sprintf("if it is gone for good: `millrace images clean %s --all` removes what is kept of it", a.name))
		}
	}
	o, err := a.open(ctx, 0)
	if err != nil {
		return err
	}
	done, err := o.CleanUp(ctx)
	if err = errors.Join(err, o.close()); err != nil {
		return err
	}
	return printCleaned(s, a.name, done)
}

// removeAll removes every variant in a store, whatever it was made of.
func (a imageFolder) removeAll(ctx context.Context, s cli.Streams) error {
	disk, err := images.OpenStore(a.images, a.scope)
	if err != nil {
		return a.inUse(err)
	}
	var done images.CleanedUp
	err = disk.Walk(ctx, func(key string, _ []byte, size int64) error {
		done.Looked++
		if err := disk.Delete(ctx, key); err != nil {
			return err
		}
		done.Removed++
		done.Bytes += size
		return nil
	})
	if err = errors.Join(err, disk.Close()); err != nil {
		return err
	}
	return printCleaned(s, a.name, done)
}

// store cleans a folder of variants by what they say they were made of.
func (c *Clean) store(ctx context.Context, s cli.Streams) error {
	dir, err := filepath.Abs(c.Store)
	if err != nil {
		return fmt.Errorf("the folder for what is converted: %w", err)
	}
	a := imageFolder{name: c.Store, dir: dir, images: images.Options{Store: c.Store}}
	if _, err := os.Stat(c.Store); err != nil {
		return fmt.Errorf("the folder for what is converted: %w", err)
	}
	if c.All {
		return c.cleanFolder(ctx, a, s)
	}
	disk, err := images.OpenStore(a.images, "")
	if err != nil {
		return a.inUse(err)
	}
	kept, err := images.ReadInventory(ctx, disk)
	if err = errors.Join(err, disk.Close()); err != nil {
		return err
	}
	if len(kept.Scopes) == 0 {
		_, err := fmt.Fprintf(s.Out, "%s: nothing is kept in it\n", c.Store)
		return err
	}
	for _, scope := range slices.Sorted(maps.Keys(kept.Scopes)) {
		if config.CheckDir(scope) != nil { // a folder that is gone, or another host
			s.Print("%s of %s are kept: there is no such folder now; --all removes them\n", cli.Count(kept.Scopes[scope], "variant"), scope)
			continue
		}
		one, err := newImageFolder(*config.ForDir(scope).Sites[0].Routes["/"].Static, a.images)
		if err != nil {
			return err
		}
		if err := c.cleanFolder(ctx, one, s); err != nil {
			return err
		}
	}
	return nil
}
