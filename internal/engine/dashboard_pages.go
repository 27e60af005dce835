package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"millrace/images"
	"millrace/internal/ops/dashboard"
	"millrace/store/bus"
	"millrace/websocket/channels"
)

// The bounds of the dashboard's pages.
const (
	mostListed   = 200 // rows of a list
	mostMessages = 50  // of a channel's history
	mostShown    = 200 // bytes of a message
)

// boardPages are the dashboard's pages of their own.
func (s *Server) boardPages() []dashboard.Page {
	return []dashboard.Page{
		{ID: "channels", Title: "Channels", Beside: "websockets", Filter: "Only channels with this text in their name", Panels: s.channelPanels},
		{ID: "pictures", Title: "Pictures", Beside: "images", Filter: "Only pictures with this text in their path", Panels: s.picturePanels},
	}
}

// channelRoutes are the routes with channels, by name.
func (s *Server) channelRoutes() map[string]*channels.Channels {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := map[string]*channels.Channels{}
	for name, r := range s.graph.websockets {
		if c := r.handler.Channels(); c != nil {
			all[name] = c
		}
	}
	return all
}

// channelPanels lists the channels and, of one that is named, who is in it and what was
// published last.
func (s *Server) channelPanels(ctx context.Context, query url.Values) []dashboard.Panel {
	routes := s.channelRoutes()
	list := dashboard.Panel{
		ID: "channels", Title: "Channels with subscribers on this server", Empty: "No channel has a subscriber here whose name has this text in it.",
		Columns: []dashboard.Column{
			{Key: "channel", Name: "channel"}, {Key: "route", Name: "route"}, {Key: "subscribers", Name: "subscribers here", Unit: dashboard.Count},
		},
		Note: "A channel's own page has its history and, with `presence` in the route's config, who is in it, on all servers.",
	}
	if len(routes) == 0 {
		list.Empty = "No route of this server has channels."
	}
	filter := query.Get("filter")
	for _, route := range slices.Sorted(maps.Keys(routes)) {
		some, all := routes[route].List(filter, mostListed)
		for _, c := range some {
			list.Rows = append(list.Rows, dashboard.Row{Values: []any{c.Name, route, float64(c.Subscribers)}})
			list.Links = append(list.Links, dashboard.Prefix+"channels?"+url.Values{"route": {route}, "channel": {c.Name}}.Encode())
		}
		if all > len(some) {
			list.Note += fmt.Sprintf(" Of %s, %d are listed, those with the most subscribers.", route, len(some))
		}
	}
	panels := []dashboard.Panel{list}
	if c := routes[query.Get("route")]; c != nil && query.Get("channel") != "" {
		name := query.Get("channel")
		panels = append(panels, membersPanel(ctx, c, name), historyPanel(ctx, c, name))
	}
	return panels
}

func membersPanel(ctx context.Context, c *channels.Channels, name string) dashboard.Panel {
	p := dashboard.Panel{
		ID: "members", Title: "Who is in " + name, Empty: "Nobody is in this channel.",
		Columns: []dashboard.Column{{Key: "user", Name: "user"}, {Key: "client", Name: "client"}, {Key: "data", Name: "info"}},
	}
	if !c.HasPresence() {
		p.Empty = "This server does not note who is in a channel: the route's config needs `presence: true`."
		return p
	}
	members, err := c.Members(ctx, name)
	if err != nil {
		p.Note = "Perhaps not all of them: " + err.Error() + "."
	}
	slices.SortFunc(members, func(a, b bus.Member) int {
		return cmp.Or(strings.Compare(a.User, b.User), strings.Compare(a.Client, b.Client))
	})
	if more := len(members) - mostListed; more > 0 {
		p.Note = fmt.Sprintf("And %d more. ", more) + p.Note
		members = members[:mostListed]
	}
	for _, m := range members {
		p.Rows = append(p.Rows, dashboard.Row{Values: []any{m.User, m.Client, shortened(m.Info)}})
	}
	return p
}

func historyPanel(ctx context.Context, c *channels.Channels, name string) dashboard.Panel {
	p := dashboard.Panel{
		ID: "history", Title: "History of " + name, Empty: "Nothing was published there lately, or the route keeps no history.",
		Columns: []dashboard.Column{
			{Key: "time", Name: "time", Unit: dashboard.Moment},
			{Key: "offset", Name: "offset", Unit: dashboard.Count},
			{Key: "bytes", Name: "size", Unit: dashboard.Bytes},
			{Key: "data", Name: "data"},
		},
		Note: fmt.Sprintf("The last %d messages at most, the youngest first.", mostMessages),
	}
	messages, err := c.History(ctx, name, mostMessages)
	if err != nil {
		p.Empty = "The history cannot be read now: " + err.Error() + "."
	}
	for _, m := range slices.Backward(messages) {
		p.Rows = append(p.Rows, dashboard.Row{Values: []any{m.Time, float64(m.Offset), float64(len(m.Data)), shortened(m.Data)}})
	}
	return p
}

// shortened is the beginning of what a client has sent, as text.
func shortened(data []byte) string {
	if len(data) <= mostShown {
		return strings.ToValidUTF8(string(data), "\ufffd")
	}
	n := mostShown
	for n > 0 && !utf8.RuneStart(data[n]) {
		n--
	}
	return strings.ToValidUTF8(string(data[:n]), "\ufffd") + " …"
}

// picturePanels lists what could not be made of images, and what there is.
func (s *Server) picturePanels(ctx context.Context, query url.Values) []dashboard.Panel {
	kept := dashboard.Panel{
		ID: "variants", Title: "Variants in the store", Empty: "There is no variant yet of an image with this text in its path.",
		Columns: []dashboard.Column{
			{Key: "original", Name: "image"},
			{Key: "route", Name: "route"},
			{Key: "variant", Name: "variant"},
			{Key: "bytes", Name: "size", Unit: dashboard.Bytes},
			{Key: "original_bytes", Name: "original", Unit: dashboard.Bytes},
			{Key: "share", Name: "of the original", Unit: dashboard.Share},
			{Key: "made", Name: "made", Unit: dashboard.Moment},
		},
		Note: "Those made or asked for last come first.",
	}
	not := dashboard.Panel{
		ID: "unmade", Title: "Not made, and why", Empty: "Nothing that was asked for since the start is missing.",
		Columns: []dashboard.Column{
			{Key: "original", Name: "image"},
			{Key: "route", Name: "route"},
			{Key: "variant", Name: "variant"},
			{Key: "cause", Name: "cause"},
			{Key: "why", Name: "why"},
			{Key: "again", Name: "tried again from", Unit: dashboard.Moment},
		},
		Note: "The originals that visitors asked for last are looked at. They are sent as they are meanwhile.",
	}
	routes := s.Images()
	if len(routes) == 0 {
		kept.Empty = "No route of this server converts images."
	}
	filter := query.Get("filter")
	for _, route := range slices.Sorted(maps.Keys(routes)) {
		h := routes[route]
		list, more, err := h.Kept(ctx, filter, mostListed)
		for _, k := range list {
			kept.Rows = append(kept.Rows, keptRow(route, k))
		}
		switch {
		case err != nil:
			kept.Note += fmt.Sprintf(" Of %s, not all could be read: %v.", route, err)
		case more:
			kept.Note += fmt.Sprintf(" Of %s there are more than these %d.", route, mostListed)
		}
		for _, u := range h.Unmade(filter, mostListed) {
			not.Rows = append(not.Rows, unmadeRow(route, u))
		}
	}
	return []dashboard.Panel{kept, not}
}

func keptRow(route string, k images.Kept) dashboard.Row {
	what := k.Format
	if k.Width > 0 {
		what += fmt.Sprintf(" %d × %d", k.Width, k.Height)
	}
	if k.Best {
		what += ", best effort"
	}
	size, share := any(float64(k.Bytes)), any(nil)
	switch {
	case k.Smaller:
		what, size = what+": the original is smaller", nil
	case k.OriginalBytes > 0:
		share = float64(k.Bytes) / float64(k.OriginalBytes)
	}
	return dashboard.Row{Values: []any{k.Original, route, what, size, float64(k.OriginalBytes), share, k.Made}}
}

func unmadeRow(route string, u images.Unmade) dashboard.Row {
	level, again := dashboard.Warn, any(nil)
	if u.Why == "" {
		level, u.Why = dashboard.Fine, "it is being made"
	}
	if !u.Again.IsZero() {
		again = u.Again
	}
	return dashboard.Row{Level: level, Values: []any{u.Original, route, cmp.Or(u.Format, "any"), u.Cause, u.Why, again}}
}

// troubles are what is wrong with the variants of images, and limits that are nearly reached.
func (s *Server) troubles() (list []dashboard.Trouble) {
	say := func(do, what string, args ...any) {
		list = append(list, dashboard.Trouble{Level: dashboard.Warn, What: fmt.Sprintf(what, args...), Do: do})
	}
	for name, h := range s.Images() {
		if err := h.Refusal(); err != nil {
			list = append(list, dashboard.Trouble{
				Level: dashboard.Bad, What: "images of " + name + " are sent as they are, since variants cannot be kept: " + err.Error(),
				Do: "Make room on the disk of " + h.Folder() + ", or let the server write there.",
			})
		} else if h.Full() {
			say("Raise the route's `images.store_size`: variants push each other out, and are made again.", "the folder for variants of %s is full", name)
		}
	}
	if all, _, _ := s.ConnectionLimits(); nearly(int(s.meters.Connections.Load()), all) {
		say("At the limit new ones are closed at once: raise `limits.connections`, or the limit of open files.", "%d of %d connections are open", s.meters.Connections.Load(), all)
	}
	var sockets int
	for _, ws := range s.meters.WebSockets() {
		sockets += int(ws.Open.Load())
	}
	if share, ok := s.WebSocketShare(); ok && nearly(sockets, share.WebSockets) {
		say("At the limit new ones are refused: "+share.Hint()+".", "%d of %d WebSockets are open", sockets, share.WebSockets)
	}
	slices.SortFunc(list, func(a, b dashboard.Trouble) int { return strings.Compare(a.What, b.What) })
	return list
}

// nearly reports whether nine tenths of a limit are used; 0 is none.
func nearly(n, most int) bool { return most > 0 && n >= most-most/10 }
