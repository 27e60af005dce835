//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/cache/purge"
)

// The pages. What the origin says of them differs.
const (
	plainPage   = iota // fresh for an hour
	parityPage         // the same
	stalePage          // may be served stale for an hour while it is fetched anew
	fragilePage        // and while the origin fails
	shortPage          // fresh for a second
	variedPage         // has two variants
	pages              // how many
)

// originSite is what the machines are in front of.
type originSite struct {
	version [pages + canaries]atomic.Int64
	asked   atomic.Int64
}

// canaries are pages behind those that are checked: one for each machine that purges.
const canaries = 3

func (o *originSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var page int
	if _, err := fmt.Sscanf(r.URL.Path, "/p/%d", &page); err != nil || page < 0 || page >= len(o.version) {
		http.NotFound(w, r)
		return
	}
	o.asked.Add(1)
	version := o.version[page].Load() // before it is on its way
	h := w.Header()
	h.Set("Cache-Control", map[int]string{
		stalePage: "max-age=3600, stale-while-revalidate=3600", fragilePage: "max-age=3600, stale-while-revalidate=60, stale-if-error=3600", shortPage: "max-age=1",
	}[page])
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "max-age=3600")
	}
	if page == variedPage {
		h.Set("Vary", "X-Variant")
	}
	h.Set("Surrogate-Key", fmt.Sprintf("page%d parity%d", page, page%2))
	tag := fmt.Sprintf(`"%d"`, version)
	h.Set("Etag", tag)
	time.Sleep(rand.N(4 * time.Millisecond))
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = fmt.Fprintf(w, "%s %d\n", r.URL.Path, version)
}

// edit gives a page its next version.
func (w *histWorld) edit(page int) {
	call := w.log.now()
	v := int(w.origin.version[page].Add(1))
	done := w.log.now()
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	w.log.edits = append(w.log.edits, edit{page, v, call, done})
}

// edits changes pages, and purges most of what it has changed.
func (w *histWorld) keepEditing(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		page := r.IntN(pages)
		w.edit(page)
		if r.IntN(10) < 7 {
			w.purge(ctx, r, page)
		}
		pause(ctx, time.Duration(10+r.IntN(40))*time.Millisecond)
	}
}

// keepPurging purges what nobody has changed.
func (w *histWorld) keepPurging(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		w.purge(ctx, r, r.IntN(pages))
		pause(ctx, time.Duration(20+r.IntN(80))*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// purge purges a page at some machine, in one of many ways.
func (w *histWorld) purge(ctx context.Context, r *rand.Rand, page int) {
	host, path := "s", pagePath(page)
	var parity, every []int
	for p := range pages {
		if every = append(every, p); p%2 == page%2 {
			parity = append(parity, p)
		}
	}
	s, what := purge.Selector{URL: "http://" + host + path}, []int{page}
	switch r.IntN(20) {
	case 0, 1, 2, 3:
		s = purge.Selector{Tag: fmt.Sprint("page", page)}
	case 4, 5:
		s, what = purge.Selector{Tag: fmt.Sprint("parity", page%2)}, parity
	case 6:
		s = purge.Selector{Prefix: host + path}
	case 7:
		s = purge.Selector{Glob: "*" + path}
	case 8:
		s, what = purge.Selector{Host: host}, every
	case 9:
		s, what = purge.Selector{All: true}, every
	}
	s.Hard = r.IntN(8) > 0
	w.purgeAt(ctx, r.IntN(len(w.machines)), s, what)
}

// purgeAt purges, and notes what was acknowledged. It reports whether the other machines
// were told.
func (w *histWorld) purgeAt(ctx context.Context, by int, s purge.Selector, what []int) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	p := &purgeCall{pages: what, by: by, call: w.log.now(), due: make([]time.Duration, len(w.machines))}
	told, err := w.machines[by].purge(ctx, s)
	p.done, p.told = w.log.now(), told
	if err != nil || !s.Hard {
		return told
	}
	text, _ := json.Marshal(s) // a few texts
	p.what = "purged " + string(text)
	if !told {
		p.what += ", the others were not told,"
	}
	p.due[by] = p.done
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	w.log.purges = append(w.log.purges, p)
	return told
}

// keepReading reads pages of a machine.
func (w *histWorld) keepReading(ctx context.Context, machine int, r *rand.Rand) {
	m := w.machines[machine]
	for ctx.Err() == nil {
		page, killed, serves := r.IntN(pages), m.killed.Load(), m.serves.Load()
		call := w.log.now()
		version, how, err := m.read(ctx, page, r.IntN(2))
		done := w.log.now()
		switch {
		case err == nil:
			w.log.mu.Lock()
			w.log.reads = append(w.log.reads, pageRead{machine, page, version, call, done, how})
			w.log.mu.Unlock()
		case ctx.Err() != nil || !serves || killed != m.killed.Load():
		default:
			w.log.fail("machine %d, a read of %s after %v: %v (%s)", machine, pagePath(page), done-call, err, how)
		}
		pause(ctx, time.Duration(r.IntN(12))*time.Millisecond)
	}
}

func histChannels() []string { return []string{"news", "chat:1"} }

// keepPublishing publishes at any machine, one publication after the other.
func (w *histWorld) keepPublishing(ctx context.Context, name string, r *rand.Rand) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 15 * time.Second}
	for n := 0; ctx.Err() == nil; n++ {
		channel := histChannels()[r.IntN(len(histChannels()))]
		p := &publication{id: fmt.Sprintf("%s-%d", name, n), channel: channel, machine: r.IntN(len(w.machines)), call: w.log.now()}
		w.log.mu.Lock()
		w.log.publications[p.id] = p
		w.log.mu.Unlock()
		// Half of them are repeated until they are acknowledged, wherever.
		for again := r.IntN(2) == 0; !w.publish(client, p) && again && ctx.Err() == nil; {
			pause(ctx, 50*time.Millisecond)
			p.machine = r.IntN(len(w.machines))
		}
		pause(ctx, time.Duration(5+r.IntN(30))*time.Millisecond)
	}
}

// publish reports whether the publication was acknowledged.
func (w *histWorld) publish(client *http.Client, p *publication) bool {
	m := w.machines[p.machine]
	life := m.killed.Load()
	req, err := http.NewRequest(http.MethodPost, "http://"+m.addr+"/live/publish?channel="+url.QueryEscape(p.channel), strings.NewReader(p.id))
	if err != nil {
		return false
	}
	req.Header.Set("Idempotency-Key", p.id)
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return false
	}
	var a said
	if err := json.Unmarshal(text, &a); err != nil || a.Published != p.channel {
		w.log.fail("publishing %s: %s", p.id, text)
		return false
	}
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	p.acked, p.done, p.life, p.offset, p.epoch = true, w.log.now(), int(life), a.Offset, a.Epoch
	return true
}

// said is what a machine says over a channel.
type said struct {
	Message, Subscribed, Placed, Reset, Published, History, Error, Code, Channel string

	Epoch     string
	Offset    uint64
	ID        string
	Data      string
	Recovered *bool
	Down      bool
	Complete  bool
	Messages  []struct {
		Offset uint64
		Data   string
	}
}

// shown is a publication that a subscriber has taken.
type shown struct {
	offset uint64
	id     string
	at     time.Duration
}

// view is what one subscriber knows of one channel, by the rules of the protocol.
type view struct {
	name    string
	channel string
	log     *chronicle

	mu     sync.Mutex
	on     bool // nothing counts until a subscription is answered
	ready  bool // it has a position
	epoch  string
	offset uint64          // of the latest
	ids    map[string]bool // of those without an offset
	known  map[string]bool // of those with one
	placed map[uint64]bool
	got    []shown
	resets int // it was told that something may be missing
	lives  int
	last   string   // of an event stream
	said   []string // to it, with when
}

// heard notes what was said to a subscriber. It is called with mu.
func (v *view) heard(format string, args ...any) {
	v.said = append(v.said, fmt.Sprintf("%7.3fs ", v.log.now().Seconds())+fmt.Sprintf(format, args...))
}

// around are the lines of what was said about the first offset behind one.
func (v *view) around(offset uint64) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, line := range v.said {
		var n uint64
		if _, text, ok := strings.Cut(line, " at "); ok && func() bool { _, err := fmt.Sscan(text, &n); return err == nil }() && n > offset {
			return strings.Join(v.said[max(0, i-12):min(len(v.said), i+8)], "\n")
		}
	}
	return ""
}

func (v *view) state() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return fmt.Sprintf("%d lives, %d until %d, reset %d times", v.lives, len(v.got), v.offset, v.resets)
}

// take takes a publication, or the place of one.
func (v *view) take(m said) {
	v.mu.Lock()
	defer v.mu.Unlock()
	at := v.log.now()
	v.heard("%s%s%s at %d, id %q, on %v", m.Data, m.Placed, m.Reset, m.Offset, m.ID, v.on)
	switch {
	case !v.on:
	case m.Placed != "":
		if v.ids[m.ID] && m.Offset > v.offset {
			v.placed[m.Offset] = true
		}
	case m.Offset == 0:
		if !v.ids[m.ID] && !v.known[m.ID] {
			v.ids[m.ID] = true
			v.got = append(v.got, shown{0, m.Data, at})
		}
	case m.Offset <= v.offset:
		v.log.fail("%s: %s came at %d, behind %d", v.name, m.Data, m.Offset, v.offset)
	default:
		v.offset = m.Offset
		if m.ID != "" {
			v.known[m.ID] = true
		}
		if !v.placed[m.Offset] && !v.ids[m.ID] {
			v.got = append(v.got, shown{m.Offset, m.Data, at})
		}
	}
}

// follow lives at one machine after the other, until ctx ends.
func (w *histWorld) follow(ctx context.Context, v *view, events bool, r *rand.Rand) {
	for ctx.Err() == nil {
		life, cancel := context.WithCancel(ctx)
		v.mu.Lock()
		v.lives++
		ready := v.ready
		n := r.IntN(len(w.machines))
		v.heard("a life at machine %d", n)
		v.mu.Unlock()
		var age *time.Timer
		if ready { // the first life lasts until there is a position
			age = time.AfterFunc(time.Duration(300+r.IntN(3000))*time.Millisecond, cancel)
		}
		m := w.machines[n]
		if events {
			v.listen(life, m)
		} else {
			v.talk(life, m)
		}
		if age != nil {
			age.Stop()
		}
		cancel()
		pause(ctx, 20*time.Millisecond)
	}
}

// talk is a life by WebSocket.
func (v *view) talk(ctx context.Context, m *machine) {
	nc, err := net.DialTimeout("tcp", m.addr, time.Second)
	if err != nil {
		return
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { _ = nc.Close() })()
	c := &wsClient{conn: nc, r: bufio.NewReader(nc)}
	if c.handshake(&url.URL{Scheme: "http", Host: m.addr, Path: "/live/ws"}, "") != nil {
		return
	}
	v.mu.Lock()
	v.on = false
	v.mu.Unlock()
	for err := v.subscribe(c); err == nil; {
		var text string
		if text, err = c.hear(); err != nil || !strings.HasPrefix(text, "{") {
			return // closed
		}
		var a said
		if e := json.Unmarshal([]byte(text), &a); e != nil {
			v.log.fail("%s: %s: %v", v.name, text, e)
			return
		}
		switch {
		case a.Error != "":
			if a.Code != "unavailable" {
				v.log.fail("%s: %s", v.name, text)
			}
			pause(ctx, 50*time.Millisecond)
			err = v.subscribe(c)
		case a.Reset != "":
			v.mu.Lock()
			v.on = false
			v.heard("reset")
			v.mu.Unlock()
			err = v.subscribe(c)
		case a.Subscribed != "":
			v.subscribed(a)
		default:
			v.take(a)
		}
	}
}

func (v *view) subscribe(c *wsClient) error {
	command := map[string]any{"subscribe": v.channel}
	if v.ready {
		command["epoch"], command["offset"] = v.epoch, v.offset
	}
	text, _ := json.Marshal(command) // texts and numbers
	_ = c.conn.SetDeadline(time.Now().Add(time.Minute))
	return c.say(string(text))
}

// subscribed takes the answer to a subscription.
func (v *view) subscribed(a said) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.on = true
	v.heard("subscribed: %+v", a)
	switch {
	case a.Down:
	case !v.ready:
		v.ready, v.epoch, v.offset = true, a.Epoch, a.Offset
	case a.Recovered != nil && !*a.Recovered:
		v.epoch = a.Epoch
		v.again()
	}
}

// again begins anew: something may be missing, and what is still there comes again.
func (v *view) again() {
	v.resets++
	v.offset, v.got = 0, nil
	clear(v.ids)
	clear(v.known)
	clear(v.placed)
}

// listen is a life by event stream.
func (v *view) listen(ctx context.Context, m *machine) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.addr+"/live/sse?channel="+url.QueryEscape(v.channel), http.NoBody)
	if err != nil {
		return
	}
	if v.last != "" {
		req.Header.Set("Last-Event-ID", v.last)
	}
	t := &http.Transport{DisableKeepAlives: true}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		pause(ctx, 50*time.Millisecond)
		return
	}
	v.mu.Lock()
	v.on = true
	v.mu.Unlock()
	id, data, kind := v.last, "", ""
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "id":
			id = value
		case "event":
			kind = value
		case "data":
			data = value
		case "":
			v.mu.Lock()
			v.last = id
			if strings.Count(id, ".") >= 1 {
				v.ready = true
			}
			v.mu.Unlock()
			v.event(kind, data)
			data, kind = "", ""
		}
	}
}

func (v *view) event(kind, data string) {
	if data == "" {
		return
	}
	var a said
	if err := json.Unmarshal([]byte(data), &a); err != nil {
		v.log.fail("%s: %s: %v", v.name, data, err)
		return
	}
	if kind == "reset" {
		v.mu.Lock()
		v.again()
		v.mu.Unlock()
		return
	}
	v.take(a)
}

// history asks a machine for all of a channel.
func (w *histWorld) history(m *machine, channel string) (truth []placedAt, epoch string, err error) {
	nc, err := net.DialTimeout("tcp", m.addr, time.Second)
	if err != nil {
		return nil, "", err
	}
	defer nc.Close()
	c := &wsClient{conn: nc, r: bufio.NewReader(nc)}
	if err := c.handshake(&url.URL{Scheme: "http", Host: m.addr, Path: "/live/ws"}, ""); err != nil {
		return nil, "", err
	}
	for _, all := range []bool{false, true} { // the first tells the epoch
		command := map[string]any{"history": channel, "limit": 1}
		if all {
			command = map[string]any{"history": channel, "epoch": epoch, "offset": 0}
		}
		text, _ := json.Marshal(command) // texts and numbers
		if err := c.say(string(text)); err != nil {
			return nil, "", err
		}
		answer, err := c.hear()
		if err != nil {
			return nil, "", err
		}
		var a said
		if err := json.Unmarshal([]byte(answer), &a); err != nil {
			return nil, "", err
		}
		if epoch = a.Epoch; a.Error != "" || all && !a.Complete {
			return nil, "", fmt.Errorf("the history of %s: %.200s", channel, answer)
		}
		truth = truth[:0]
		for _, m := range a.Messages {
			truth = append(truth, placedAt{m.Offset, m.Data})
		}
	}
	return truth, epoch, nil
}

// settleChannels waits until every publication that must have a place has it, and every
// subscriber has got what it must.
func (w *histWorld) settleChannels(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		open := 0
		for _, channel := range histChannels() {
			truth, _, err := w.history(w.machines[0], channel)
			if err != nil {
				open++
				continue
			}
			w.log.mu.Lock()
			for _, p := range w.log.publications {
				if p.channel == channel && p.acked && !w.lost(p) && !slices.ContainsFunc(truth, func(x placedAt) bool { return x.id == p.id }) {
					open++
				}
			}
			views := w.log.views
			w.log.mu.Unlock()
			for _, v := range views {
				v.mu.Lock()
				if v.channel == channel && v.resets == 0 {
					for _, x := range truth {
						if !slices.ContainsFunc(v.got, func(s shown) bool { return s.id == x.id }) {
							open++
							break
						}
					}
				}
				v.mu.Unlock()
			}
		}
		if open == 0 {
			return
		}
	}
}

// lost reports whether what a machine had taken without a place may be lost: its process
// has ended since.
func (w *histWorld) lost(p *publication) bool {
	return p == nil || !p.acked || p.offset == 0 && int(w.machines[p.machine].killed.Load()) != p.life
}
