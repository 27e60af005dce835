package channels

import (
	"context"
	"slices"
	"strings"

	"millrace/store/bus"
	"millrace/websocket/hub"
)

// List returns channels with subscribers on this machine; see [hub.Hub.List]. That of
// orders is not among them.
func (c *Channels) List(part string, most int) (list []hub.Listed, all int) {
	list, all = c.hub.List(part, most+1) // with one more, since that of orders is nobody's
	list = slices.DeleteFunc(list, func(l hub.Listed) bool { return l.Name == orders })
	if c.ordered && strings.Contains(orders, part) {
		all--
	}
	return list[:min(len(list), most)], all
}

// HasPresence reports whether the server knows who is in a channel.
func (c *Channels) HasPresence() bool { return c.presence }

// History returns the latest publications of a channel, the oldest first.
func (c *Channels) History(ctx context.Context, channel string, most int) ([]bus.Message, error) {
	h, err := await(ctx, func(done func(bus.History, error)) { c.hub.History(channel, nil, most, done) })
	return h.Messages, err
}

// Members returns who is in a channel, on all machines, where the server knows it.
func (c *Channels) Members(ctx context.Context, channel string) ([]bus.Member, error) {
	if !c.presence {
		return nil, nil
	}
	return await(ctx, func(done func([]bus.Member, error)) { c.hub.Presence(channel, done) })
}

// await waits for what the bus answers, or ctx.
func await[T any](ctx context.Context, ask func(done func(T, error))) (T, error) {
	type answer struct {
		what T
		err  error
	}
	got := make(chan answer, 1)
	ask(func(what T, err error) { got <- answer{what, err} })
	select {
	case a := <-got:
		return a.what, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
