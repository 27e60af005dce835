package packcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"millrace/cmd/internal/cli"
	"millrace/cmd/internal/imagescmd"
	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/images/worker"
	"millrace/static"
	"millrace/static/packer"
)

const (
	// largestImage is the largest file, in bytes, that is converted, as the
	// default of images.Options.
	largestImage = 25 << 20
	// workerTest bounds the self-test of the encoders.
	workerTest = 20 * time.Second
	// shownImages is how many are named that could not be converted.
	shownImages = 5
)

// converted are the endings of images that have variants made.
var converted = []string{".jpg", ".jpeg", ".png", ".gif"}

// conversion makes the variants of all folders.
type conversion struct {
	pool *worker.Pool
	dir  string // a folder for variants, below it one for each folder

	mu     sync.Mutex
	bar    *cli.Bar
	done   int
	made   int
	failed []string
}

// images makes the variants of the plan's images, in a folder that end removes.
// The same images make the same variants: only what is built in converts.
func (c *Pack) images(ctx context.Context, p *packer.Plan, s cli.Streams) (end func(), err error) {
	dir, err := os.MkdirTemp("", "millrace-pack-")
	if err != nil {
		return nil, fmt.Errorf("a folder for converted images: %w", err)
	}
	remove := func() { _ = os.RemoveAll(dir) }
	defer func() {
		if err != nil {
			remove() // not end: that is nil beside an error
		}
	}()
	testing, cancel := context.WithTimeout(ctx, workerTest)
	defer cancel()
	pool, err := worker.New(testing, worker.Options{Command: imagescmd.WorkerCommand(), Level: "embedded", ErrorLog: s.Logger()})
	if err != nil {
		return nil, fmt.Errorf("starting to convert images: %w", err)
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	if len(pool.Abilities().Formats) == 0 {
		return nil, cli.Failure(errors.New("this millrace converts no images: it was built with -tags small"), "build it without, or leave --images out")
	}
	all := &conversion{pool: pool, dir: dir}
	names := make([][]string, len(p.Folders))
	total := 0
	for i, f := range p.Folders {
		if names[i], err = imagesOf(f); err != nil {
			return nil, err
		}
		total += len(names[i])
	}
	if total == 0 {
		return remove, nil
	}
	s.Print("converting %s to WebP and AVIF\n", cli.Count(total, "image"))
	all.bar = cli.NewBar(s, total, time.Now())
	for i := range p.Folders {
		to := filepath.Join(dir, fmt.Sprint(i))
		if err = all.folder(ctx, p.Folders[i], to, names[i]); err != nil {
			break
		}
		if _, none := os.Stat(to); none == nil {
			p.Folders[i].Variants, p.Folders[i].Below = to, static.PackedVariants
		}
	}
	all.bar.End()
	if err != nil {
		return nil, err
	}
	s.Print("  %s that are smaller than their originals\n", cli.Count(all.made, "variant"))
	for i, text := range all.failed {
		if i == shownImages {
			s.Print("  and %d more\n", len(all.failed)-i)
			break
		}
		s.Print("  packed as it is: %s\n", text)
	}
	return remove, nil
}

// imagesOf are the names of a folder's images that are packed.
func imagesOf(f packer.Folder) (names []string, err error) {
	all, err := packer.List(f)
	for _, name := range all {
		ending := strings.ToLower(path.Ext(name))
		for _, e := range converted {
			if e == ending {
				names = append(names, name)
			}
		}
	}
	return names, err
}

// folder converts on all cores.
func (c *conversion) folder(ctx context.Context, f packer.Folder, to string, names []string) error {
	root, err := os.OpenRoot(f.Dir)
	if err != nil {
		return fmt.Errorf("opening the folder %s: %w", f.Dir, err)
	}
	defer func() { _ = root.Close() }() // read only
	work, errs := make(chan string), make(chan error, runtime.GOMAXPROCS(0))
	var running sync.WaitGroup
	for range cap(errs) {
		running.Go(func() {
			for name := range work {
				if err := c.one(ctx, root, to, name); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	for _, name := range names {
		select {
		case work <- name:
			continue
		case err = <-errs:
		case <-ctx.Done():
			err = ctx.Err()
		}
		break
	}
	close(work)
	running.Wait()
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	return err
}

// one makes the variants of an image. What cannot be converted is packed as it
// is; an error is about the disk, or the end of it all.
func (c *conversion) one(ctx context.Context, root *os.Root, to, name string) error {
	made, why := 0, error(nil)
	info, err := root.Stat(filepath.FromSlash(name))
	var data []byte
	switch {
	case err != nil:
		return fmt.Errorf("reading %s: %w", name, err)
	case info.Size() > largestImage:
		why = fmt.Errorf("it has more than %s", cli.Amount(largestImage))
	default:
		if data, err = root.ReadFile(filepath.FromSlash(name)); err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
	}
	for _, format := range []codec.Format{codec.AVIF, codec.WebP} {
		if why != nil {
			break
		}
		result, err := c.pool.Convert(ctx, worker.Source{Reader: bytes.NewReader(data), Size: int64(len(data))}, convert.Spec{Format: format, Quality: 80, Effort: codec.Fast}, false)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, convert.ErrNoGain):
			continue
		case err != nil:
			why = err
			continue
		}
		file := filepath.Join(to, filepath.FromSlash(name)+"."+string(format))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return fmt.Errorf("writing a variant of %s: %w", name, err)
		}
		if err := os.WriteFile(file, result.Data, 0o600); err != nil {
			return fmt.Errorf("writing a variant of %s: %w", name, err)
		}
		if err := os.Chtimes(file, info.ModTime(), info.ModTime()); err != nil { // the date is packed
			return fmt.Errorf("writing a variant of %s: %w", name, err)
		}
		made++
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	c.made += made
	if why != nil {
		c.failed = append(c.failed, name+": "+why.Error())
	}
	c.bar.Step(c.done, len(c.failed))
	return nil
}
