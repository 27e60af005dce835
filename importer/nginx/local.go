package nginx

import (
	"slices"

	"millrace/importer/draft"
)

// servedLocally is why a site is closed that nginx did not serve to all.
const servedLocally = "nginx served this block on loopback, a socket or a private address alone"

// locals finds the blocks that fewer clients can connect to than to others. A site is
// served on all addresses, so they stay closed, and come after the others, whose hosts
// and requests they must not take.
func (im *importer) locals() {
	for _, s := range im.servers {
		own := draft.Widest(slices.Concat(s.plain, s.secure)...)
		s.local = slices.ContainsFunc(im.servers, func(o *server) bool { return draft.Widest(slices.Concat(o.plain, o.secure)...) > own })
	}
	slices.SortStableFunc(im.servers, func(a, b *server) int {
		switch {
		case a.local == b.local:
			return 0
		case a.local:
			return 1
		}
		return -1
	})
	for _, s := range im.servers {
		if !s.local || im.hiddenAnyway(s) {
			continue
		}
		im.Leave(s.last("listen"), "a site is served on all addresses: give it "+localAccess(s)+", or a process of its own. It answers 403 until its first rule is removed")
		s.closed = append(s.closed, s.block.At()+": "+servedLocally)
	}
}

// localAccess is the access for those clients that could connect before.
func localAccess(s *server) string {
	if draft.Widest(slices.Concat(s.plain, s.secure)...) == draft.ThisNetwork {
		return "access: {allow: [your network]}"
	}
	return "access: {allow: [127.0.0.0/8, '::1', unix]}"
}

// hiddenAnyway reports whether a block becomes rules for plain HTTP alone, which
// is served nowhere else.
func (im *importer) hiddenAnyway(s *server) bool {
	return s.onlyPlain() && im.mergedInto(s) != nil && len(im.withoutTLS(s)) == 0 &&
		!slices.ContainsFunc(im.servers, func(o *server) bool { return draft.Widest(o.plain...) > draft.Widest(s.plain...) })
}
