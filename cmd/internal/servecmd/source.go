package servecmd

import (
	"fmt"
	"os"

	"millrace/cmd/internal/cli"
	"millrace/internal/config"
)

// folder is a source that is one.
type folder struct {
	dir    string
	images bool // its images are converted
	lists  bool // folders without an index are listed
	found  bool // nobody asked for it by name
}

func (f *folder) source() Source {
	return Source{folder: f, Load: f.load, Subject: func(*config.Config) string { return f.subject() }}
}

func (f *folder) load(flags []config.Setting) (*config.Config, error) {
	cfg := config.ForDir(f.dir)
	if f.images {
		cfg = config.ForImages(f.dir)
	}
	if f.lists {
		cfg.Sites[0].Routes["/"].Static.Listing = true
	}
	return cfg, cfg.Check(flags...)
}

func (f *folder) subject() string {
	subject := "serves the folder " + f.dir
	if f.found {
		subject = "serves this folder"
	}
	if f.images {
		subject += " and converts its images"
	}
	return subject
}

// byConfig is what a config says; found: nobody asked for it by name.
func byConfig(file string, found bool) Source {
	return Source{
		File: file,
		Load: func(flags []config.Setting) (*config.Config, error) { return config.Load(file, flags...) },
		Subject: func(cfg *config.Config) string {
			s := fmt.Sprintf("serves %s as %s says", cli.Count(len(cfg.Sites), "site"), file)
			if found {
				s += " (found here)"
			}
			return s
		},
	}
}

// source decides what to serve. A folder on the command line wins over a
// config in the environment.
func (c *Serve) source() (Source, error) {
	switch {
	case c.Dir != "" && c.Config != "" && c.Config != os.Getenv("MILLRACE_CONFIG"):
		return Source{}, cli.Usage(
			"a folder and a config: only one of them can say what to serve",
			fmt.Sprintf("`millrace serve %s` or `millrace serve --config %s`", c.Dir, c.Config),
		)
	case c.Dir != "":
		return (&folder{dir: c.Dir, images: c.images(), lists: c.Listing}).source(), cli.CheckDir("millrace serve", c.Dir)
	case c.Config != "" && c.Listing:
		return Source{}, listingByConfig(c.Config)
	case c.Config != "" && c.Images:
		return Source{}, imagesByConfig(c.Config)
	case c.Config != "":
		return byConfig(c.Config, false), nil
	}
	if _, err := os.Stat(config.FileName); err == nil {
		if c.Listing {
			return Source{}, listingByConfig(config.FileName)
		}
		if c.Images {
			return Source{}, imagesByConfig(config.FileName)
		}
		return byConfig(config.FileName, true), nil
	}
	return (&folder{dir: ".", found: true, images: c.images(), lists: c.Listing}).source(), nil
}

// images reports whether a folder's images are to be converted: how they are
// says so, too.
func (c *Serve) images() bool {
	return c.Images || c.ImagesQuality != 0 || len(c.ImagesFormats) > 0 || c.ImagesStore != ""
}

// imagesByConfig: a flag cannot say which of a config's routes is meant.
func imagesByConfig(file string) error {
	return cli.Usage("--images is for a folder; a config says it itself", "write \"images: on\" beside a route's \"static:\" in "+file)
}

// listingByConfig is imagesByConfig for --listing.
func listingByConfig(file string) error {
	return cli.Usage("--listing is for a folder; a config says it itself", "write \"static: {root: …, listing: true}\" for the route in "+file)
}

// Examples end the help of the verbs.
func Examples() cli.Examples {
	return cli.Examples{
		"serve": {
			"millrace serve ./public                    # http://127.0.0.1:8080",
			"millrace serve ./public -l :80             # to everyone, port 80",
			"millrace serve ./public --domain a.example # HTTPS, certificate and all",
			"millrace serve ./public --tls internal     # HTTPS for development",
			"millrace serve ./files --listing           # what is in each folder",
			"millrace serve ./photos --images           # images as WebP and AVIF",
			"millrace serve --config millrace.yaml      # as the config says",
			"millrace serve . -l unix:/run/web.sock     # behind another server",
		},
		"check":  {"millrace check && systemctl reload millrace"},
		"reload": {"millrace check && millrace reload"},
		"init": {
			"millrace init && millrace check && millrace serve",
			"millrace init --from-json config.json      # from the published cache's config",
		},
	}
}
