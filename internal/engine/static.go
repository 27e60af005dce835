package engine

import (
	"fmt"
	"io"
	"strings"

	"millrace/internal/config"
	"millrace/internal/server"
	"millrace/static"
)

// mount tells a handler of files the path that its URLs begin with, if it needs that.
func mount(rc *config.Route, pattern string) {
	if rc.Static == nil || len(rc.Static.Dictionaries) == 0 && !rc.Static.RuleFiles || !strings.HasPrefix(pattern, "/") || !strings.HasSuffix(pattern, "/") {
		return
	}
	o := *rc.Static
	o.Mount = strings.TrimSuffix(pattern, "/")
	rc.Static = &o
}

// Notes are what the operator should know about the files of a route.
func Notes(sc config.Site, pattern string) []string {
	rc := sc.Routes[pattern]
	if rc.Cache != nil {
		return cacheNotes(sc, pattern, rc)
	}
	if rc.Static == nil {
		return nil
	}
	return append(rc.Static.Warnings(runBeside(rc)...), rc.Static.RuleFaults()...)
}

// runBeside are the extensions of scripts that PHP runs beside a route's files.
func runBeside(rc config.Route) []string {
	if rc.PHP == nil {
		return nil
	}
	return []string{".php"}
}

func (b *builder) static(rc config.Route) (*static.Handler, error) {
	o := *rc.Static
	o.Log = b.server.errors
	background, err := reuseOrOpen(b, "static background", func() (*static.Background, io.Closer, error) {
		all := static.NewBackground(server.Descriptors(), &b.server.meters.Clients)
		return all, all, nil
	})
	if err != nil {
		return nil, err
	}
	o.Background = background
	if rc.Files != nil { // which cannot be compared with those of the old graph
		return reuseOrOpen(b, keyOf("files", []any{b.server.builds, o}), func() (*static.Handler, io.Closer, error) {
			h, err := static.New(rc.Files, o)
			return h, h, err
		})
	}
	return reuseOrOpen(b, keyOf("static", o), func() (*static.Handler, io.Closer, error) {
		if site := b.server.options.Packed; site != nil {
			if site.Folder(o.Root) != nil {
				h, err := static.OpenPacked(site, o)
				return h, h, err
			}
		}
		h, err := static.Open(o.Root, o)
		if err == nil {
			b.survey(o, runBeside(rc))
		}
		return h, h, err
	})
}

// maxSurveys bounds the folders that are searched at a start or reload: each may have
// thousands of files.
const maxSurveys = 64

// survey logs what the operator should know about a new folder.
func (b *builder) survey(o static.Options, run []string) {
	switch b.surveys++; {
	case b.surveys <= maxSurveys:
		for _, warning := range o.Warnings(run...) {
			b.server.errors.Warn(warning)
		}
	case b.surveys == maxSurveys+1:
		b.server.errors.Warn(fmt.Sprintf("only the first %d folders were looked through for sources and secrets; `millrace check` looks through all", maxSurveys))
	}
}
