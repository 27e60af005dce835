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
			if folder := site.Folder(o.Root); folder != nil {
				h, err := static.OpenPacked(folder, o)
				return h, h, err
			}
		}
		h, err := static.Open(o.Root, o)
		if err == nil {
			for _, warning := range o.Warnings() {
				b.server.errors.Warn(warning)
			}
		}
		return h, h, err
	})
}
