package engine

import (
	"io"

	"millrace/static"
)

func (b *builder) static(o static.Options) (*static.Handler, error) {
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
