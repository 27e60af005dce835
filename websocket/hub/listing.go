package hub

import (
	"cmp"
	"slices"
	"strings"
)

// Listed is a channel with subscribers on this machine.
type Listed struct {
	Name        string
	Subscribers int // on this machine, with those on their way in
}

// List returns channels whose names have part in them, those with the most subscribers
// first, but not more than most; all is how many there are. It looks at all channels: it is
// for people, not for each request.
func (h *Hub) List(part string, most int) (list []Listed, all int) {
	for i := range h.stripes {
		st := &h.stripes[i]
		st.mu.Lock()
		for name, ch := range st.channels {
			if ch.subs > 0 && strings.Contains(name, part) {
				all++
				list = append(list, Listed{name, int(ch.subs)})
			}
		}
		st.mu.Unlock()
		slices.SortFunc(list, func(a, b Listed) int {
			return cmp.Or(cmp.Compare(b.Subscribers, a.Subscribers), cmp.Compare(a.Name, b.Name))
		})
		list = list[:min(len(list), most)]
	}
	return list, all
}
