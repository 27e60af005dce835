package engine

import (
	"cmp"

	"millrace/cache"
	"millrace/images"
	"millrace/internal/bytesize"
	"millrace/internal/config"
	"millrace/internal/lane"
	"millrace/static"
)

// budget is how many bytes of contents cfg allows to be held in memory by its
// jobs and the fast lane; 0 where no job holds any. Jobs with the same options
// are one, but each route with remote images has memory of its own. Variants of
// a folder's images share the memory of the folder.
func budget(cfg *config.Config) (total bytesize.Size) {
	seen := map[string]bool{}
	add := func(kind string, options any, size bytesize.Size) {
		if k := keyOf(kind, options); !seen[k] {
			seen[k] = true
			total += size
		}
	}
	for _, s := range cfg.Sites {
		for pattern, r := range s.Routes {
			switch {
			case r.Cache != nil:
				add("cache", r.Cache, cmp.Or(r.Cache.Memory, cache.DefaultMemory))
			case r.Static != nil:
				add("static", *r.Static, cmp.Or(r.Static.Memory, static.DefaultMemory))
			case r.Images != nil:
				add("images "+routeName(s.Hosts, pattern), *r.Images, images.DefaultHeld)
			}
		}
	}
	if total > 0 && !cfg.Lane.Off {
		total += cmp.Or(cfg.Lane.Memory, lane.DefaultMemory)
	}
	return total
}
