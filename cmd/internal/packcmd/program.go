package packcmd

import (
	"errors"
	"fmt"
	"time"

	"github.com/alecthomas/kong"

	"millrace/cmd/internal/cli"
	"millrace/cmd/internal/servecmd"
	"millrace/internal/config"
	"millrace/static/packfile"
)

// Program is the command line of a packed site.
type Program struct {
	Serve   Serve              `cmd:"" default:"withargs" help:"Serve the site that is in this file."`
	List    List               `cmd:"" help:"List what is in this file."`
	Verify  Verify             `cmd:"" help:"Compare everything in this file with the sums that were made when it was packed."`
	Unpack  Unpack             `cmd:"" help:"Write the site's files into a folder."`
	Version cli.VersionCommand `cmd:"" help:"Print which millrace serves it."`
}

// Serve is FILE alone: it serves its site.
type Serve struct {
	servecmd.Flags `embed:""`
}

// Run serves until a signal ends it.
func (c *Serve) Run(ctx *kong.Context, s cli.Streams, taken *servecmd.Signals, site *packfile.Site) error {
	return Damaged(servecmd.Source{
		Load: func(flags []config.Setting) (*config.Config, error) { return parse(site.Config, site, flags...) },
		Subject: func(*config.Config) string {
			return "serves the " + cli.Count(site.Files(), "file") + " packed in it"
		},
		Packed: site,
	}.Serve(cli.Settings(ctx), s, taken))
}

// List is `FILE list`.
type List struct {
	JSON bool `name:"json" help:"As JSON."`
}

// Run lists.
func (c *List) Run(s cli.Streams, site *packfile.Site) error {
	if c.JSON {
		return s.WriteJSON(site.Listed())
	}
	return site.WriteList(s.Out)
}

// Verify is `FILE verify`.
type Verify struct{}

// Run compares.
func (c *Verify) Run(s cli.Streams, site *packfile.Site) error {
	bar, done := cli.NewBar(s, site.Files(), time.Now()), 0
	err := site.Verify(func() { done++; bar.Step(done, 0) })
	bar.End()
	if err != nil {
		return Damaged(err)
	}
	_, err = fmt.Fprintf(s.Out, "%s and the program are as they were packed\n", cli.Count(done, "file"))
	return err
}

// Unpack is `FILE unpack DIR`.
type Unpack struct {
	Dir string `arg:"" complete:"dir" help:"The folder to write to. It is made if need be, and must be empty."`
}

// Run writes the files, and the config where there is one.
func (c *Unpack) Run(s cli.Streams, site *packfile.Site) error {
	if err := site.Unpack(c.Dir, config.FileName); errors.Is(err, packfile.ErrNotEmpty) {
		return cli.Failure(fmt.Errorf("%s is not empty", c.Dir), "name a folder that is not there yet")
	} else if err != nil {
		return Damaged(err)
	}
	s.Print("wrote %s to %s\n", cli.Count(site.Files(), "file"), c.Dir)
	return nil
}

// Damaged is what a packed site says that is not as it was packed.
func Damaged(err error) error {
	if errors.Is(err, packfile.ErrAltered) {
		return cli.Failure(err, "get the file again, or pack the site again")
	}
	return err
}
