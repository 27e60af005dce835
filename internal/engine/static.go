package engine

import (
	"io"
	"strings"

	"millrace/internal/config"
	"millrace/static"
)

// mount tells files where their URLs begin, if they need to know.
func mount(rc *config.Route, pattern string) {
	if rc.Static == nil || len(rc.Static.Dictionaries) == 0 && !rc.Static.RuleFiles || !strings.HasPrefix(pattern, "/") || !strings.HasSuffix(pattern, "/") {
		return
	}
	o := *rc.Static
	o.Mount = strings.TrimSuffix(pattern, "/")
	rc.Static = &o
}

// Notes are what the operator should know about the files of a route.
func Notes(rc config.Route) []string {
	if rc.Static == nil {
		return nil
	}
	return append(rc.Static.Warnings(runBeside(rc)...), rc.Static.RuleFaults()...)
}

// runBeside are the endings of what PHP runs beside a route's files.
func runBeside(rc config.Route) []string {
	if rc.PHP == nil {
		return nil
	}
	return []string{".php"}
}

func (b *builder) static(rc config.Route) (*static.Handler, error) {
	o := *rc.Static
	o.Log = b.server.errors
	if rc.Files != nil { // which cannot be compared with those of the old graph
		return carry(b, keyOf("files", []any{b.server.builds, o}), func() (*static.Handler, io.Closer, error) {
			h, err := static.New(rc.Files, o)
			return h, h, err
		})
	}
	return carry(b, keyOf("static", o), func() (*static.Handler, io.Closer, error) {
		if site := b.server.options.Packed; site != nil {
			if site.Folder(o.Root) != nil {
				h, err := static.OpenPacked(site, o)
				return h, h, err
			}
		}
		h, err := static.Open(o.Root, o)
		if err == nil {
			for _, warning := range o.Warnings(runBeside(rc)...) {
				b.server.errors.Warn(warning)
			}
		}
		return h, h, err
	})
}
