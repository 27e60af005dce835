package channels

import (
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"millrace/store/bus"
	"millrace/websocket/centrifuge"
)

// publishSDK hands a publication to the publisher, as publish does.
func (c *Channels) publishSDK(k *sdkClient, id uint32, req *centrifuge.PublishRequest) error {
	channel := req.Channel
	if !k.grant.MayPublish(channel) {
		return centrifuge.Fail(centrifuge.PermissionDenied, "you may not publish to this channel")
	}
	if len(req.Data) > c.maxPublish {
		return centrifuge.Fail(centrifuge.BadRequest, fmt.Sprintf("a publication has at most %d bytes, this one %d", c.maxPublish, len(req.Data)))
	}
	data, wrong := publishable(req.Data, k.form)
	if wrong != "" {
		return centrifuge.Fail(centrifuge.BadRequest, wrong)
	}
	later := k.port.Later()
	after := k.others().pending[channel]
	if !after.await() {
		after = nil
	}
	err := c.publisher.add(&k.session, job{
		message: bus.Message{Channel: channel, Data: data, From: k.who(channel)},
		after:   after,
		done: func(_ bus.Message, err error) {
			r := &centrifuge.Reply{ID: id, Publish: &centrifuge.Empty{}}
			if err != nil {
				r = &centrifuge.Reply{ID: id, Error: errorOf(c.unpublished(err, channel))}
			}
			later(func() { k.write(r) })
		},
	})
	if err != nil {
		return centrifuge.Fail(centrifuge.Internal, err.Error())
	}
	return nil
}

// publishable brings data into one line of JSON: channels have nothing else, whatever
// the form of who publishes.
func publishable(data []byte, form centrifuge.Form) (line []byte, wrong string) {
	if len(data) == 0 {
		return nil, "publish needs data: any JSON value"
	}
	if form == centrifuge.Protobuf && (!utf8.Valid(data) || !json.Valid(data)) {
		return nil, "the data of a publication is JSON, in protobuf too"
	}
	return inLine(data)
}

// ask counts the answers that a client waits for.
func (k *sdkClient) ask() error {
	if k.asking >= maxAsking {
		return centrifuge.Fail(centrifuge.TooManyRequests, "wait for the answers")
	}
	k.asking++
	return nil
}

// answered sends an answer of the bus, from anywhere.
func (k *sdkClient) answered(later func(f func()), r *centrifuge.Reply) {
	later(func() {
		k.asking--
		k.write(r)
	})
}

// presenceSDK asks the bus who is in a channel, and answers with what say makes of it.
func (c *Channels) presenceSDK(k *sdkClient, id uint32, channel string, say func(r *centrifuge.Reply, members []bus.Member)) error {
	if f := c.maySee(k.grant, channel); f != nil {
		return errorOf(f)
	}
	if err := k.ask(); err != nil {
		return err
	}
	later := k.port.Later()
	c.hub.Presence(channel, func(members []bus.Member, err error) {
		r := &centrifuge.Reply{ID: id}
		if err != nil {
			r.Error = centrifuge.Fail(centrifuge.Internal, "who is in this channel cannot be known now")
		} else {
			say(r, members)
		}
		k.answered(later, r)
	})
	return nil
}

// presenceOf is as many members as fit into an answer: presence_stats counts all.
func (c *Channels) presenceOf(r *centrifuge.Reply, members []bus.Member) {
	r.Presence = &centrifuge.PresenceResult{Presence: map[string]*centrifuge.ClientInfo{}}
	size := 0
	for i := range members {
		m := &members[i]
		size += len(m.Client) + len(m.User) + len(m.Info) + len(m.InChannel) + len(`"":{"client":"","user":"","conn_info":,"chan_info":},`) + len(m.Client)
		if size > c.queue/shareOfQueue && i > 0 {
			return
		}
		r.Presence.Presence[m.Client] = infoOf(m)
	}
}

func statsOf(r *centrifuge.Reply, members []bus.Member) {
	users := map[string]struct{}{}
	for i := range members {
		users[members[i].User] = struct{}{}
	}
	r.PresenceStats = &centrifuge.StatsResult{Clients: uint32(len(members)), Users: uint32(len(users))}
}

// historySDK asks the bus for a page of the history.
func (c *Channels) historySDK(k *sdkClient, id uint32, req *centrifuge.HistoryRequest) error {
	switch {
	case k.find(req.Channel) == nil && !k.grant.MaySubscribe(req.Channel):
		return centrifuge.Fail(centrifuge.PermissionDenied, notAllowed(req.Channel).text)
	case !c.keeps:
		return centrifuge.Fail(centrifuge.NotAvailable, "no history is kept here")
	}
	if err := k.ask(); err != nil {
		return err
	}
	later, page := k.port.Later(), pageOf(req)
	c.hub.History(req.Channel, page.since(), page.ask(), func(h bus.History, err error) {
		r := &centrifuge.Reply{ID: id}
		switch {
		case err != nil:
			r.Error = centrifuge.Fail(centrifuge.Internal, "the history cannot be read now")
		case !page.reaches(h):
			r.Error = centrifuge.Fail(centrifuge.Unrecoverable, "")
		default:
			r.History = c.pageResult(h, page, k.form, c.queue/shareOfQueue)
		}
		k.answered(later, r)
	})
	return nil
}

// pageResult is a page as an answer has it: with at most so many bytes.
func (c *Channels) pageResult(h bus.History, p page, form centrifuge.Form, most int) *centrifuge.HistoryResult {
	r := &centrifuge.HistoryResult{Epoch: h.Top.Epoch, Offset: h.Top.Offset, Publications: []*centrifuge.Publication{}}
	for _, m := range p.cut(h.Messages, most) {
		one := c.publicationOf(m, form)
		one.Time = m.Time.UnixMilli()
		r.Publications = append(r.Publications, one)
	}
	return r
}

// page is a part of a history: at most limit publications behind from, or with reverse
// those before it, the newest first. Without from it begins at the one end or the other.
type page struct {
	limit   int // below 0: all
	reverse bool
	from    *bus.Position
}

func pageOf(req *centrifuge.HistoryRequest) page {
	p := page{limit: int(req.Limit), reverse: req.Reverse}
	if req.Since != nil {
		p.from = &bus.Position{Epoch: req.Since.Epoch, Offset: req.Since.Offset}
	}
	return p
}

// since and ask are what the bus is asked for: it gives the latest publications behind a
// position, so for others it has to be asked for all.
func (p page) since() *bus.Position {
	if p.reverse {
		return nil
	}
	return p.from
}

func (p page) ask() int {
	switch {
	case p.limit == 0 && p.from == nil:
		return 1
	case p.limit > 0 && p.reverse && p.from == nil:
		return p.limit
	}
	return 0
}

// reaches reports whether the page can be cut out of a history: it has the place that
// the page goes on from, and nothing between the two is missing.
func (p page) reaches(h bus.History) bool {
	switch {
	case p.from == nil:
		return true
	case p.from.Epoch != "" && p.from.Epoch != h.Top.Epoch:
		return false
	case p.reverse:
		return p.from.Offset <= h.Top.Offset+1
	}
	return h.Complete || p.from.Epoch == ""
}

// cut takes the page out of the messages, oldest first, that the bus has given: as many
// as fit into an answer.
func (p page) cut(all []bus.Message, most int) []bus.Message {
	if p.limit == 0 {
		return nil
	}
	all = slices.Clone(all)
	if p.from != nil { // without an epoch the bus does not look at the offset
		all = slices.DeleteFunc(all, func(m bus.Message) bool {
			return p.reverse && m.Offset >= p.from.Offset || !p.reverse && m.Offset <= p.from.Offset
		})
	}
	if p.reverse {
		slices.Reverse(all)
	}
	if p.limit > 0 && len(all) > p.limit {
		all = all[:p.limit]
	}
	for i, size := 0, 0; i < len(all); i++ {
		if size += len(all[i].Data) + len(all[i].ID) + len(`{"data":,"offset":,"time":},`) + 34; size > most && i > 0 {
			return all[:i]
		}
	}
	return all
}
