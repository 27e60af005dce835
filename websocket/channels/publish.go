package channels

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"millrace/store/bus"
)

const (
	// publishChannels is how many channels one request may publish to.
	publishChannels = 100
	// maxIdempotency is the most bytes of an Idempotency-Key.
	maxIdempotency = 128
	// bodyTimeout is how long a body may take to come: it is small, and whoever
	// sends it is a program.
	bodyTimeout = 30 * time.Second
	// epochTimeout is how long an answer waits for the epoch, which is good to
	// know and not more.
	epochTimeout = 2 * time.Second
)

// ServePublish is POST …/publish?channel=NAME, with the data as its body: JSON if
// its Content-Type says so, else text, which becomes a JSON string. channel may
// be there several times. With an Idempotency-Key the same request publishes
// once, as long as the history goes back.
//
// The answer is {"published":"news","offset":17,"epoch":"…"}, or for several
// channels {"publications":[…]} with one such object each, in their order. A
// publication that the machines of a bus could not give an offset yet has an
// "id" instead.
func (c *Channels) ServePublish(w http.ResponseWriter, r *http.Request) {
	messages, no := c.publication(w, r)
	if no != nil {
		refuse(w, r, no, http.MethodPost)
		return
	}
	ctx, cancel := publishContext(r.Context())
	defer cancel()
	for i := range messages {
		m, err := c.hub.Publish(ctx, messages[i])
		if err != nil {
			refuse(w, r, c.notPublished(err, messages, i), http.MethodPost)
			return
		}
		messages[i] = m
	}
	var b []byte
	for i, m := range messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = c.appendPublished(ctx, b, m)
	}
	if len(messages) > 1 {
		b = append(append([]byte(`{"publications":[`), b...), `]}`...)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Write(append(b, '\n'))
}

// notPublished is the answer when the bus did not take message i.
func (c *Channels) notPublished(err error, messages []bus.Message, i int) *Refusal {
	f := c.unpublished(err, messages[i].Channel)
	if f.code == tooBig {
		return refusal(http.StatusRequestEntityTooLarge, f.text)
	}
	if i > 0 {
		return refusal(http.StatusServiceUnavailable, fmt.Sprintf("published to %d of %d channels, then: %s; with an Idempotency-Key nothing is published twice", i, len(messages), f.text))
	}
	return refusal(http.StatusServiceUnavailable, f.text)
}

func (c *Channels) appendPublished(ctx context.Context, b []byte, m bus.Message) []byte {
	b = appendQuoted(append(b, `{"published":`...), m.Channel)
	b = appendPlace(append(b, ','), m, false)
	if m.Offset > 0 {
		if epoch := c.epoch(ctx, m.Channel); epoch != "" {
			b = appendQuoted(append(b, `,"epoch":`...), epoch)
		}
	}
	return append(b, '}')
}

// epoch is that of a channel's offsets; "" if that cannot be known soon.
func (c *Channels) epoch(ctx context.Context, channel string) string {
	ctx, cancel := context.WithTimeout(ctx, epochTimeout)
	defer cancel()
	known := make(chan string, 1)
	c.hub.History(channel, nil, 1, func(h bus.History, _ error) { known <- h.Top.Epoch })
	select {
	case epoch := <-known:
		return epoch
	case <-ctx.Done():
		return ""
	}
}

// publication reads what is to be published.
func (c *Channels) publication(w http.ResponseWriter, r *http.Request) ([]bus.Message, *Refusal) {
	if r.Method != http.MethodPost {
		return nil, refusal(http.StatusMethodNotAllowed, "publish with POST")
	}
	if no := c.mayPublish(r); no != nil {
		return nil, no
	}
	channels := r.URL.Query()["channel"]
	switch {
	case len(channels) == 0:
		return nil, refusal(http.StatusBadRequest, "name a channel: publish?channel=news")
	case len(channels) > publishChannels:
		return nil, refusal(http.StatusBadRequest, fmt.Sprintf("%d channels are too many for one request: at most %d", len(channels), publishChannels))
	}
	key := r.Header.Get("Idempotency-Key")
	if len(key) > maxIdempotency || strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' }) {
		return nil, refusal(http.StatusBadRequest, fmt.Sprintf("an Idempotency-Key is printable ASCII, at most %d bytes", maxIdempotency))
	}
	var messages []bus.Message
	for i, channel := range channels {
		if err := checkChannel(channel); err != nil {
			return nil, refusal(http.StatusBadRequest, err.Error())
		}
		if slices.Contains(channels[:i], channel) {
			return nil, refusal(http.StatusBadRequest, fmt.Sprintf("channel %q is there twice", channel))
		}
		id := key
		if key != "" && len(channels) > 1 { // an ID belongs to one publication
			id += "." + channelKey(channel)
		}
		messages = append(messages, bus.Message{Channel: channel, ID: id})
	}
	data, no := c.body(w, r)
	for i := range messages {
		messages[i].Data = data
	}
	return messages, no
}

// mayPublish says whether a request comes from who may publish.
func (c *Channels) mayPublish(r *http.Request) *Refusal {
	if len(c.keys) == 0 {
		if reason := notLocal(r); reason != "" {
			return refusal(http.StatusForbidden, "without keys only this machine itself may publish, and this "+reason+": add a key to the options keys, and send it with Authorization: Bearer KEY")
		}
		return nil
	}
	key := r.Header.Get("X-Api-Key")
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && key == "" && (strings.EqualFold(scheme, "Bearer") || strings.EqualFold(scheme, "apikey")) {
		key = strings.TrimSpace(token)
	}
	if key == "" {
		return refusal(http.StatusUnauthorized, "publishing needs a key: send Authorization: Bearer KEY")
	}
	sum, found := sha256.Sum256([]byte(key)), 0
	for i := range c.keys { // all of them: the time says nothing
		found |= subtle.ConstantTimeCompare(sum[:], c.keys[i][:])
	}
	if found == 0 {
		return refusal(http.StatusUnauthorized, "this key is none of those that may publish")
	}
	return nil
}

// body reads the data: one line of JSON.
func (c *Channels) body(w http.ResponseWriter, r *http.Request) ([]byte, *Refusal) {
	asJSON, no := kindOf(r.Header)
	if no != nil {
		return nil, no
	}
	big := refusal(http.StatusRequestEntityTooLarge, fmt.Sprintf("a publication has at most %d bytes", c.maxPublish))
	if r.ContentLength > int64(c.maxPublish) {
		return nil, big
	}
	// A writer that knows no deadlines has others.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(c.maxPublish)))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, big
	} else if err != nil {
		return nil, refusal(http.StatusBadRequest, "the body did not come whole")
	}
	if !utf8.Valid(body) {
		return nil, refusal(http.StatusUnsupportedMediaType, "the body is not UTF-8: send text or JSON")
	}
	if !asJSON {
		if body = appendQuoted(nil, string(body)); len(body) > c.maxPublish {
			return nil, big
		}
		return body, nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, body); err != nil {
		return nil, refusal(http.StatusBadRequest, "the body is not JSON: "+strings.TrimPrefix(err.Error(), "json: "))
	}
	if tooDeep(b.Bytes()) {
		return nil, refusal(http.StatusBadRequest, deep)
	}
	return b.Bytes(), nil
}

// kindOf says whether a body is JSON or text.
func kindOf(h http.Header) (asJSON bool, _ *Refusal) {
	deny := func(text string) (bool, *Refusal) {
		return false, refusal(http.StatusUnsupportedMediaType, text)
	}
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return deny("the body is compressed: send it as it is")
	}
	given := h.Get("Content-Type")
	if given == "" {
		return false, nil
	}
	kind, params, err := mime.ParseMediaType(given)
	if err != nil {
		return deny("this Content-Type is none: send application/json or text/plain")
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "us-ascii") {
		return deny("the charset " + strconv.Quote(charset) + " is not understood: send UTF-8")
	}
	switch {
	case kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"):
		return true, nil
	case strings.HasPrefix(kind, "text/") || kind == "application/x-www-form-urlencoded": // what curl -d says of any text
		return false, nil
	}
	return deny(strconv.Quote(kind) + " cannot be published: send application/json or text/plain")
}
