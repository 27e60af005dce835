// Package packcmd has the verb that packs a site into one executable, and the
// verbs of such an executable.
package packcmd

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"millrace/cmd/internal/cli"
	"millrace/internal/config"
	"millrace/static"
	"millrace/static/packer"
	"millrace/static/packfile"
)

const (
	// fullBase and slimBase are the programs that can be packed behind, by the
	// path that the go command builds into them.
	fullBase = "millrace/cmd/millrace"
	slimBase = "millrace/cmd/millrace-slim"
)

// Pack is `millrace pack`.
type Pack struct {
	Site    string   `arg:"" complete:"file" help:"The folder to pack, or a config whose folders are packed with it."`
	Out     string   `short:"o" required:"" placeholder:"FILE" complete:"file" help:"The executable to write. What is there is replaced when the new one is whole."`
	Base    string   `placeholder:"FILE" complete:"file" help:"The program that serves the site: a millrace for another platform, or a small one built from cmd/millrace-slim. One that is packed already gives its program alone. Default: this millrace."`
	Images  bool     `help:"Convert images and pack them as WebP and AVIF as well: each browser gets the smallest that it takes."`
	Include []string `placeholder:"GLOB" help:"Pack only what matches: *.html by name, /img/*.png by path, /docs/ for all below it. May be repeated."`
	Exclude []string `placeholder:"GLOB" help:"Leave out what matches. May be repeated."`
}

// Examples end the help of the verb.
func Examples() cli.Examples {
	return cli.Examples{
		"pack": {
			"millrace pack ./public -o site && ./site         # http://127.0.0.1:8080",
			"./site --listen :80                              # to everyone, port 80",
			"./site list; ./site verify; ./site unpack copy   # what is in it",
			"millrace pack millrace.yaml -o site              # as a config says",
			"millrace pack ./public -o site --images          # with WebP and AVIF of its images",
			"millrace pack ./public -o site --base millrace-slim",
		},
	}
}

// Run packs.
func (c *Pack) Run(s cli.Streams) error {
	if err := c.check(); err != nil {
		return err
	}
	plan := packer.Plan{Base: c.Base, Out: c.Out, Warn: func(text string) { s.Print("  %s\n", text) }}
	if plan.Base == "" {
		plan.Base = ownFile()
	}
	if err := c.site(&plan); err != nil {
		return err
	}
	if err := checkBase(plan.Base, c.Base != "", len(plan.Slim) > 0); err != nil {
		return err
	}
	until, stop := cli.UntilInterrupted()
	defer stop()
	began := time.Now()
	if c.Images {
		end, err := c.images(until, &plan, s)
		if until.Err() != nil {
			return fmt.Errorf("stopped: %s is as it was", c.Out)
		}
		if err != nil {
			return err
		}
		defer end()
	}
	var bar *cli.Bar
	plan.Progress = func(done, total int) {
		if bar == nil {
			bar = cli.NewBar(s, total, began)
		}
		bar.Step(done, 0)
	}
	sum, err := packer.Make(until, plan)
	if bar != nil {
		bar.End()
	}
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, fs.ErrClosed) && until.Err() != nil:
		return fmt.Errorf("stopped: %s is as it was", c.Out)
	case err != nil:
		return err
	}
	s.Print("wrote %s: %s, %s, as an executable of %s, in %s\n", c.Out, cli.Count(sum.Files, "file"),
		cli.Amount(sum.Plain), cli.Amount(sum.Size), cli.Brief(time.Since(began)))
	info, _ := buildinfo.ReadFile(c.Out) // what cannot be told is taken for one of this machine
	if other := otherPlatform(info); other != "" {
		s.Print("  next: copy it to a machine with %s, and run it there\n", other)
		return nil
	}
	s.Print("  next: %s\n", runnable(c.Out))
	return nil
}

// otherPlatform is the system and the processor that a program is built for, empty
// for those of this machine, or where it cannot be told.
func otherPlatform(info *debug.BuildInfo) string {
	if info == nil {
		return ""
	}
	of := map[string]string{"GOOS": runtime.GOOS, "GOARCH": runtime.GOARCH}
	for _, s := range info.Settings {
		if _, ok := of[s.Key]; ok {
			of[s.Key] = s.Value
		}
	}
	if of["GOOS"] == runtime.GOOS && of["GOARCH"] == runtime.GOARCH {
		return ""
	}
	return of["GOOS"] + "/" + of["GOARCH"]
}

// ownFile is this program's own file.
func ownFile() string {
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		return "/proc/self/exe" // also when it was replaced meanwhile
	}
	name, _ := os.Executable() // an error shows when it is opened
	return name
}

// runnable is a file's name as a shell runs it.
func runnable(name string) string {
	if filepath.Base(name) == name {
		return "./" + name
	}
	return name
}

// check looks at the patterns.
func (c *Pack) check() error {
	for _, globs := range [][]string{c.Include, c.Exclude} {
		for _, g := range globs {
			if _, err := path.Match(g, ""); err != nil || g == "" {
				return cli.Usage(fmt.Sprintf("%q is not a pattern", g), "write one like *.html, /img/*.png or /docs/")
			}
		}
	}
	if info, err := os.Stat(c.Out); err == nil && !info.Mode().IsRegular() {
		return cli.Usage(c.Out+" is no file", "name the executable to write: -o site")
	}
	return nil
}

// site finds out what is to be packed.
func (c *Pack) site(p *packer.Plan) error {
	info, err := os.Stat(c.Site)
	if err == nil && !info.IsDir() {
		return c.byConfig(p)
	}
	if err := cli.CheckDir("millrace pack", c.Site); err != nil {
		return err
	}
	p.Config = []byte(packfile.FolderConfig)
	p.Folders = []packer.Folder{c.folder(".", c.Site, static.Options{})}
	cfg, err := parse(p.Config, nil)
	if err != nil {
		return err
	}
	p.Slim, err = slimPlan(cfg)
	return err
}

// byConfig packs the folders that a config names.
func (c *Pack) byConfig(p *packer.Plan) error {
	text, err := os.ReadFile(c.Site)
	if err != nil {
		return fmt.Errorf("reading the config: %w", err)
	}
	here, err := config.Parse(c.Site, text)
	if err != nil {
		return cli.BadConfig(c.Site, err)
	}
	files, err := config.Included(c.Site, text)
	if err != nil {
		return err //nolint:wrapcheck // says what to do
	}
	if text, err = packfile.JoinConfig(text, files); err != nil {
		return fmt.Errorf("packing the config: %w", err)
	}
	packed, err := parse(text, nil)
	if err != nil {
		return cli.BadConfig(c.Site, err)
	}
	p.Config = text
	seen := map[string]bool{}
	folders := func(o, here static.Options) {
		for i, name := range o.Folders() {
			if !seen[name] {
				seen[name] = true
				p.Folders = append(p.Folders, c.folder(name, here.Folders()[i], o))
			}
		}
	}
	for i, site := range packed.Sites {
		for _, pattern := range slices.Sorted(maps.Keys(site.Routes)) {
			route := site.Routes[pattern]
			if route.Static == nil {
				continue
			}
			if route.PHP != nil {
				p.Warn("the folder of " + pattern + " stays on disk: PHP reads its files there")
				continue
			}
			if len(route.Static.Dictionaries) > 0 {
				p.Warn("what " + pattern + " says of dictionaries is left out: a packed site has no versions")
			}
			on := *here.Sites[i].Routes[pattern].Static
			if !seen[route.Static.Root] {
				for _, fault := range on.RuleFaults() {
					p.Warn(fault)
				}
			}
			folders(*route.Static, on)
		}
	}
	if len(p.Folders) == 0 {
		return cli.Failure(fmt.Errorf("%s serves no folder: there is nothing to pack", c.Site), "a route with \"static:\" has one")
	}
	p.Slim, err = slimPlan(packed)
	return err
}

// folder is how one folder is packed: what its options keep from visitors stays
// out of the file, too.
func (c *Pack) folder(name, dir string, o static.Options) packer.Folder {
	serves := o.Packs()
	excluded := func(name string) bool {
		return slices.ContainsFunc(c.Exclude, func(g string) bool { return static.Matches(g, name) })
	}
	return packer.Folder{
		Name: name, Dir: dir, Type: static.TypeOf,
		NoPrecompressed: o.NoPrecompressed, NoCompress: o.NoCompress,
		Enters: func(name string) bool { return serves(name) && !excluded(name) && !excluded(name+"/") },
		Takes: func(name string) bool {
			if !serves(name) || excluded(name) {
				return false
			}
			return slices.ContainsFunc(c.Include, func(g string) bool { return static.Matches(g, name) }) || len(c.Include) == 0
		},
	}
}

// checkBase says why a program cannot serve a packed site.
func checkBase(name string, named, slimWillDo bool) error {
	info, err := buildinfo.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the base program: %w", err)
	case !named: // it is running this
	case err != nil || info.Path != fullBase && info.Path != slimBase:
		return cli.Failure(fmt.Errorf("%s is not a millrace", name), "--base takes one that was built from cmd/millrace or cmd/millrace-slim, for any platform")
	case info.Path == slimBase && !slimWillDo:
		return cli.Failure(fmt.Errorf("%s is a slim millrace: it serves folders and redirects, and the config asks for more", name), "take a full one as --base, or leave it out")
	}
	return nil
}

// parse reads a packed config. Of its folders only those that site has need not
// be on disk; nil: all of them.
func parse(text []byte, site *packfile.Site, flags ...config.Setting) (*config.Config, error) {
	return config.ParsePacked(config.FileName, bytes.Clone(text), func(root string) bool { return site == nil || site.Folder(root) != nil }, flags...)
}
