// Package imagescmd has the verbs about images: those that convert a folder's
// ahead, tidy up what was converted, and say what it saves; and the program's verb
// for a worker process that converts one.
package imagescmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"millrace/cmd/internal/cli"
	"millrace/images"
	"millrace/internal/config"
	"millrace/static"
	"millrace/store/disk"
)

// Command is `millrace images`: the verb itself, which converts ahead,
// and those about what was converted. A folder that is called like one of them
// is reached as ./clean.
type Command struct {
	Convert Convert `cmd:"" default:"withargs" help:"Convert a folder's images ahead of time, so that no visitor waits."`
	Clean   Clean   `cmd:"" help:"Remove the variants of images that have changed or are gone; with --all, every variant."`
	Stats   Stats   `cmd:"" help:"Show which encoders are used, what is stored, and how much it saves."`
}

// maxJobs bounds --jobs: more at once only take memory.
const maxJobs = 256

// Convert is `millrace images DIR`. The keys are those of the
// folder's one route, as of `millrace serve DIR --images`.
type Convert struct {
	Dir    string `arg:"" optional:"" complete:"dir" help:"The folder with the images; subfolders are included."`
	Config string `short:"c" placeholder:"FILE" complete:"file" env:"MILLRACE_CONFIG" help:"Convert the folders that this config serves with images."`

	Jobs    int      `short:"j" placeholder:"N" help:"How many images to convert at once. Default: the number of CPUs."`
	Quality int      `placeholder:"N" key:"images.quality" env:"MILLRACE_IMAGES_QUALITY" help:"The quality, 1 to 100, as it will be served. Default 80."`
	Formats []string `placeholder:"FORMAT" values:"avif,webp" key:"images.formats" env:"MILLRACE_IMAGES_FORMATS" help:"What to convert to: avif, webp or both. Default both."`
	Store   string   `placeholder:"DIR" complete:"dir" key:"images.store" env:"MILLRACE_IMAGES_STORE" help:"The folder for what is converted. Default: the one that \"millrace serve DIR --images\" uses, below the user's cache folder."`
}

// Run converts until all is done, or a signal stops it.
func (c *Convert) Run(ctx *kong.Context, s cli.Streams) error {
	if c.Jobs < 0 || c.Jobs > maxJobs {
		return cli.Usage(fmt.Sprintf("--jobs %d: between 1 and %d", c.Jobs, maxJobs), "leave it out for as many as there are CPUs")
	}
	cfg, err := c.load(ctx)
	if err != nil {
		return err
	}
	all, err := imageFolders(cfg)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return cli.Failure(fmt.Errorf("%s serves no folder with images", c.Config), "write \"images: on\" beside a route's \"static:\"")
	}
	until, stop := cli.UntilInterrupted()
	defer stop()
	for _, a := range all {
		if err := a.convert(until, c.Jobs, s); err != nil {
			return err
		}
	}
	return nil
}

// load is the config to go by: that of `millrace serve` for the same arguments.
func (c *Convert) load(ctx *kong.Context) (*config.Config, error) {
	if c.Dir != "" {
		if c.Config != "" && c.Config != os.Getenv("MILLRACE_CONFIG") {
			return nil, cli.Usage(
				"a folder and a config: only one of them can say what to convert",
				fmt.Sprintf("`millrace images %s` or `millrace images --config %s`", c.Dir, c.Config),
			)
		}
		if err := cli.CheckDir("millrace images", c.Dir); err != nil {
			if other := c.meant(cli.Selected(ctx).Parent); other != nil {
				return nil, other
			}
			return nil, err
		}
		cfg := config.ForImages(c.Dir)
		return cfg, cli.BadConfig("", cfg.Check(cli.Settings(ctx)...))
	}
	if c.Config == "" {
		if _, err := os.Stat(config.FileName); err != nil {
			return nil, cli.Usage("the folder with the images is missing", "for example `millrace images photos`, or `millrace images .` for this one")
		}
		c.Config = config.FileName
	}
	for _, one := range cli.Settings(ctx) {
		if strings.HasPrefix(one.From, "--") { // what stands in the environment may be meant for a folder
			return nil, cli.Usage(one.From+" is for a folder; a config says it itself", fmt.Sprintf("write it below \"%s\" in %s", strings.Replace(one.Key, ".", ":\" as \"", 1), c.Config))
		}
	}
	cfg, err := config.Load(c.Config)
	return cfg, cli.BadConfig(c.Config, err)
}

// meant is an error that names another verb, if the folder is almost one and
// is not there.
func (c *Convert) meant(group *kong.Node) error {
	if _, err := os.Stat(c.Dir); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return cli.OtherVerb(c.Dir, group)
}

// imageFolder is a folder of images that a route converts.
type imageFolder struct {
	name   string // how a person calls it
	scope  string // how the store does
	dir    string // where variants are kept
	static static.Options
	images images.Options
}

// imageFolders are those of a config, in the order of hosts and paths. Images from
// another host are not in a folder, and are left out.
func imageFolders(cfg *config.Config) (all []imageFolder, err error) {
	for _, site := range cfg.Sites {
		for _, r := range site.Routes {
			if r.Images == nil || r.Static == nil {
				continue
			}
			a, err := newImageFolder(*r.Static, *r.Images)
			if err != nil {
				return nil, err
			}
			all = append(all, a)
		}
	}
	slices.SortStableFunc(all, func(a, b imageFolder) int { return strings.Compare(a.scope, b.scope) })
	return all, nil
}

// newImageFolder finds out what the server would call a folder.
func newImageFolder(st static.Options, o images.Options) (a imageFolder, err error) {
	a = imageFolder{name: st.Root, static: st, images: o}
	if a.scope, err = st.Scope(); err != nil {
		return a, fmt.Errorf("the folder of the images: %w", err)
	}
	if a.dir, err = o.Folder(a.scope); err != nil {
		return a, err
	}
	if a.dir, err = filepath.Abs(a.dir); err != nil { // as the server says it
		return a, fmt.Errorf("the folder for what is converted: %w", err)
	}
	return a, nil
}

// openFolder is one with its store, its source and its engine.
type openFolder struct {
	*images.Handler
	disk   *disk.Store
	source *static.Handler
	engine *images.Engine
}

// engineTest bounds the self-test of the encoders.
const engineTest = 20 * time.Second

// open opens what is kept, and starts an engine. jobs is how many conversions
// may run at once, 0 for the default.
func (a imageFolder) open(ctx context.Context, jobs int) (o *openFolder, err error) {
	o = &openFolder{}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	if o.disk, err = images.OpenStore(a.images, a.scope); err != nil {
		return o, a.inUse(err)
	}
	if o.source, err = static.Open(a.static.Root, a.static); err != nil {
		return o, err
	}
	eo := a.images.EngineOptions()
	eo.Alike = true // somebody waits for all of it
	if jobs > 0 {
		eo.Workers = jobs
	}
	discard := slog.New(slog.DiscardHandler) // what fails is told at the end, once
	test, cancel := context.WithTimeout(ctx, engineTest)
	defer cancel()
	if o.engine, err = images.NewEngine(test, eo, WorkerCommand(), discard); err != nil {
		return o, err
	}
	a.images.Prefetch = false // here it is asked for
	o.Handler, err = images.New(a.images, images.Deps{Source: o.source, Engine: o.engine, Store: o.disk, Scope: a.scope, ErrorLog: discard})
	return o, err
}

// inUse says what to do about a folder that a server has.
func (a imageFolder) inUse(err error) error {
	if !errors.Is(err, disk.ErrInUse) {
		return err
	}
	return cli.Failure(
		fmt.Errorf("another millrace has %s open, the folder for what is converted: %w", cli.Homely(a.dir), disk.ErrInUse),
		"a server that runs converts by itself: with images: {prefetch: true} in its config everything, ahead; or stop it first",
	)
}

// close ends everything that was begun.
func (o *openFolder) close() error {
	var errs []error
	if o.Handler != nil {
		errs = append(errs, o.Close())
	}
	if o.engine != nil {
		errs = append(errs, o.engine.Close())
	}
	if o.source != nil {
		errs = append(errs, o.source.Close())
	}
	if o.disk != nil {
		errs = append(errs, o.disk.Close())
	}
	return errors.Join(errs...)
}

// Examples end the help of the verbs.
func Examples() cli.Examples {
	return cli.Examples{
		"images": {
			"millrace images photos && millrace serve photos --images",
			"millrace images photos --formats webp --jobs 1     # in the background, the small one only",
			"millrace images --config millrace.yaml             # every folder that it serves with images",
			"millrace images stats                              # of the running server",
		},
		"images clean": {
			"millrace images clean                              # of the running server",
			"millrace images clean photos --all",
		},
		"images stats": {
			"millrace images stats                              # of the running server",
			"millrace images stats photos --json | jq .photos.kept",
		},
	}
}
