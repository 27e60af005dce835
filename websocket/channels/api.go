package channels

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"millrace/store/bus"
	"millrace/websocket/auth"
	"millrace/websocket/centrifuge"
	"millrace/websocket/hub"
)

// apiPath is what the methods of the server API are below.
const apiPath = "/api"

// IsAPI reports whether a path below the route is one of the server API.
func IsAPI(path string) bool { return path == apiPath || strings.HasPrefix(path, apiPath+"/") }

const (
	// apiCommands is how many commands one request may have.
	apiCommands = 1000
	// apiBody is the most bytes of a request.
	apiBody = 16 << 20
	// apiAnswer is from how many bytes on the answers to several commands are enough:
	// each may be as long as apiBody.
	apiAnswer = 2 * apiBody
)

// ServeAPI is the server API of Centrifugo: POST …/api/METHOD with the parameters as JSON,
// answered with {"result":…} or {"error":{"code","message"}}. POST …/api takes lines of
// {"method":…,"params":…}, as older clients send them, and answers with as many.
//
// It lets those in who may publish: see mayPublish.
func (c *Channels) ServeAPI(w http.ResponseWriter, r *http.Request) {
	body, no := c.apiBody(w, r)
	if no != nil {
		refuse(w, r, no, http.MethodPost)
		return
	}
	ctx, cancel := publishContext(r.Context())
	defer cancel()
	var answer []byte
	var commands []apiCommand
	switch method := strings.Trim(strings.TrimPrefix(r.URL.Path, apiPath), "/"); method {
	case "":
		if commands, no = apiLines(body); no == nil {
			answer, no = c.apiAll(ctx, commands, "\n", func(string) string { return "result" })
		}
	case "batch":
		if commands, no = apiBatch(body); no == nil {
			answer, no = c.apiAll(ctx, commands, ",", func(method string) string { return method })
			answer = append(append([]byte(`{"replies":[`), answer...), `]}`...)
		}
	default:
		var reply apiReply
		if reply, no = c.api(ctx, method, body); no == nil {
			answer = reply.json("result")
		}
	}
	if no != nil {
		refuse(w, r, no, http.MethodPost)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Write(append(answer, '\n'))
}

func (c *Channels) apiBody(w http.ResponseWriter, r *http.Request) ([]byte, *Refusal) {
	if r.Method != http.MethodPost {
		return nil, refusal(http.StatusMethodNotAllowed, "ask with POST")
	}
	if no := c.mayPublish(r); no != nil {
		return nil, no
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // a writer that knows no deadlines has others
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, apiBody))
	switch {
	case err != nil && len(body) >= apiBody:
		return nil, refusal(http.StatusRequestEntityTooLarge, fmt.Sprintf("a request has at most %d bytes", apiBody))
	case err != nil:
		return nil, refusal(http.StatusBadRequest, "the body did not come whole")
	case !utf8.Valid(body):
		return nil, refusal(http.StatusBadRequest, "the body is not UTF-8")
	}
	return body, nil
}

// apiReply is the answer to one command.
type apiReply struct {
	Result any               `json:"result,omitempty"`
	Error  *centrifuge.Error `json:"error,omitempty"`
}

// json is the reply as an answer has it, with the result by a name.
func (r apiReply) json(name string) []byte {
	var value any = struct{}{}
	switch {
	case r.Error != nil:
		name, value = "error", r.Error
	case r.Result != nil:
		value = r.Result
	}
	b := bytes.NewBuffer(append(appendQuoted([]byte{'{'}, name), ':'))
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return []byte(`{"error":{"code":100,"message":"internal server error"}}`) // cannot be: all data is checked
	}
	return append(bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), '}')
}

// apiCommand is one of several in a request.
type apiCommand struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// apiLines reads the commands of older clients.
func apiLines(body []byte) (commands []apiCommand, _ *Refusal) {
	d := json.NewDecoder(bytes.NewReader(body))
	for d.More() {
		var command apiCommand
		if err := d.Decode(&command); err != nil {
			return nil, refusal(http.StatusBadRequest, "this is no command: send objects like {\"method\":\"publish\",\"params\":{…}}")
		}
		commands = append(commands, command)
	}
	if len(commands) == 0 {
		return nil, refusal(http.StatusBadRequest, "there is no command")
	}
	return commands, nil
}

// apiBatch reads several commands, each an object of one method with its parameters.
func apiBatch(body []byte) (commands []apiCommand, _ *Refusal) {
	var batch struct {
		Commands []map[string]json.RawMessage `json:"commands"`
	}
	if err := json.Unmarshal(body, &batch); err != nil {
		return nil, badParams(err)
	}
	for _, command := range batch.Commands {
		if len(command) != 1 {
			return nil, refusal(http.StatusBadRequest, `each command is an object of one method, like {"publish":{…}}`)
		}
		for method, params := range command {
			commands = append(commands, apiCommand{method, params})
		}
	}
	return commands, nil
}

// apiAll obeys commands one after the other. What is wrong with one is said in its
// place, and the others are done. nameOf is by which name the result of a method stands.
func (c *Channels) apiAll(ctx context.Context, commands []apiCommand, between string, nameOf func(method string) string) (answer []byte, _ *Refusal) {
	if len(commands) > apiCommands {
		return nil, refusal(http.StatusBadRequest, fmt.Sprintf("there are more than %d commands", apiCommands))
	}
	for i, command := range commands {
		reply := apiReply{Error: centrifuge.Fail(centrifuge.LimitExceeded, "the answers to the commands before it are too long")}
		if len(answer) < apiAnswer {
			var no *Refusal
			if reply, no = c.api(ctx, command.Method, command.Params); no != nil {
				reply.Error = centrifuge.Fail(centrifuge.BadRequest, no.Text)
			}
		}
		if i > 0 {
			answer = append(answer, between...)
		}
		answer = append(answer, reply.json(nameOf(command.Method))...)
	}
	return answer, nil
}

func badParams(err error) *Refusal {
	return refusal(http.StatusBadRequest, "the parameters cannot be read: "+strings.TrimPrefix(err.Error(), "json: "))
}

// method is one of the API: it reads its parameters, and does what they say.
type method func(ctx context.Context, params []byte) (result any, err error)

// typed makes a method of a function with parameters of a type.
func typed[P any](f func(ctx context.Context, p P) (any, error)) method {
	return func(ctx context.Context, params []byte) (any, error) {
		var p P
		if len(params) > 0 {
			if err := json.Unmarshal(params, &p); err != nil {
				return nil, badParams(err)
			}
		}
		return f(ctx, p)
	}
}

func (c *Channels) method(name string) method {
	switch name {
	case "publish":
		return typed(c.apiPublish)
	case "broadcast":
		return typed(c.apiBroadcast)
	case "subscribe", "unsubscribe", "disconnect", "refresh":
		return typed(func(ctx context.Context, o order) (any, error) {
			o.Do = name
			return nil, c.order(ctx, o)
		})
	case "presence":
		return typed(c.apiPresence)
	case "presence_stats":
		return typed(c.apiStats)
	case "history":
		return typed(c.apiHistory)
	case "channels":
		return typed(c.apiChannels)
	case "info":
		return typed(c.apiInfo)
	case "history_remove", "rpc":
		return func(context.Context, []byte) (any, error) {
			return nil, centrifuge.Fail(centrifuge.NotAvailable, name+" is not known here")
		}
	}
	return nil
}

// api obeys one command.
func (c *Channels) api(ctx context.Context, name string, params []byte) (apiReply, *Refusal) {
	m := c.method(name)
	if m == nil {
		return apiReply{}, refusal(http.StatusNotFound, fmt.Sprintf("there is no method %.40q", name))
	}
	result, err := m(ctx, params)
	if err == nil {
		return apiReply{Result: result}, nil
	}
	if no, ok := errors.AsType[*Refusal](err); ok {
		return apiReply{}, no
	}
	return apiReply{Error: replyError(err)}, nil
}

// apiPublication is what is published, to one channel or several.
type apiPublication struct {
	Channel        string            `json:"channel"`
	Channels       []string          `json:"channels"`
	Data           json.RawMessage   `json:"data"`
	B64Data        string            `json:"b64data"`
	IdempotencyKey string            `json:"idempotency_key"`
	Tags           map[string]string `json:"tags"`
	Version        uint64            `json:"version"`
}

// data is one line of JSON.
func (p *apiPublication) line(most int) ([]byte, error) {
	data := []byte(p.Data)
	if p.B64Data != "" {
		var err error
		if data, err = base64.StdEncoding.DecodeString(p.B64Data); err != nil {
			return nil, centrifuge.Fail(centrifuge.BadRequest, "b64data is not base64")
		}
	}
	data, wrong := publishable(data, centrifuge.Protobuf)
	switch {
	case wrong != "":
		return nil, centrifuge.Fail(centrifuge.BadRequest, wrong)
	case len(data) > most:
		return nil, centrifuge.Fail(centrifuge.BadRequest, fmt.Sprintf("a publication has at most %d bytes", most))
	case tagBytes(p.Tags) > maxTags:
		return nil, centrifuge.Fail(centrifuge.BadRequest, fmt.Sprintf("tags have at most %d bytes", maxTags))
	case p.Version > 0:
		return nil, centrifuge.Fail(centrifuge.BadRequest, "publications have no versions here")
	case len(p.IdempotencyKey) > maxIdempotency:
		return nil, centrifuge.Fail(centrifuge.BadRequest, fmt.Sprintf("an idempotency_key has at most %d bytes", maxIdempotency))
	}
	return data, nil
}

// maxTags is the most bytes of tags: they are kept beside the data.
const maxTags = 4 << 10

func tagBytes(tags map[string]string) (n int) {
	for key, value := range tags {
		n += len(key) + len(value)
	}
	return n
}

// placed is where a publication is.
type placed struct {
	Offset uint64 `json:"offset"`
	Epoch  string `json:"epoch"`
}

func (c *Channels) apiPublish(ctx context.Context, p apiPublication) (any, error) {
	data, err := p.line(c.maxPublish)
	if err != nil {
		return nil, err
	}
	return c.apiPut(ctx, bus.Message{Channel: p.Channel, ID: p.IdempotencyKey, Data: data, Tags: p.Tags})
}

func (c *Channels) apiPut(ctx context.Context, m bus.Message) (any, error) {
	if err := checkChannel(m.Channel); err != nil {
		return nil, centrifuge.Fail(centrifuge.BadRequest, err.Error())
	}
	published, err := c.hub.Publish(ctx, m)
	if err != nil {
		return nil, errorOf(c.unpublished(err, m.Channel))
	}
	at := placed{Offset: published.Offset}
	if at.Offset > 0 {
		at.Epoch = c.epoch(ctx, m.Channel)
	}
	return at, nil
}

func (c *Channels) apiBroadcast(ctx context.Context, p apiPublication) (any, error) {
	data, err := p.line(c.maxPublish)
	switch {
	case err != nil:
		return nil, err
	case len(p.Channels) == 0:
		return nil, centrifuge.Fail(centrifuge.BadRequest, "there are no channels")
	case len(p.Channels) > apiCommands:
		return nil, centrifuge.Fail(centrifuge.LimitExceeded, fmt.Sprintf("at most %d channels", apiCommands))
	}
	responses := []apiReply{}
	for _, channel := range p.Channels {
		id := p.IdempotencyKey
		if id != "" {
			id += "." + channelKey(channel) // an ID belongs to one publication
		}
		at, err := c.apiPut(ctx, bus.Message{Channel: channel, ID: id, Data: data, Tags: p.Tags})
		reply := apiReply{Result: at}
		if err != nil {
			reply = apiReply{Error: replyError(err)}
		}
		responses = append(responses, reply)
	}
	return map[string]any{"responses": responses}, nil
}

// aboutChannel are the parameters of methods that only read.
type aboutChannel struct {
	Channel string               `json:"channel"`
	Limit   int32                `json:"limit"`
	Since   *centrifuge.Position `json:"since"`
	Reverse bool                 `json:"reverse"`
	Pattern string               `json:"pattern"`
}

func (c *Channels) presentIn(ctx context.Context, channel string) ([]bus.Member, error) {
	if err := checkChannel(channel); err != nil {
		return nil, centrifuge.Fail(centrifuge.BadRequest, err.Error())
	}
	if !c.presence {
		return nil, centrifuge.Fail(centrifuge.NotAvailable, "presence is not kept here")
	}
	members, err := await(ctx, func(done func([]bus.Member, error)) { c.hub.Presence(channel, done) })
	if err != nil {
		return nil, centrifuge.Fail(centrifuge.Internal, "who is in this channel cannot be known now")
	}
	return members, nil
}

func (c *Channels) apiPresence(ctx context.Context, p aboutChannel) (any, error) {
	members, err := c.presentIn(ctx, p.Channel)
	if err != nil {
		return nil, err
	}
	r := centrifuge.PresenceResult{Presence: map[string]*centrifuge.ClientInfo{}}
	for i := range members {
		r.Presence[members[i].Client] = infoOf(&members[i])
	}
	return r, nil
}

func (c *Channels) apiStats(ctx context.Context, p aboutChannel) (any, error) {
	members, err := c.presentIn(ctx, p.Channel)
	if err != nil {
		return nil, err
	}
	var r centrifuge.Reply
	statsOf(&r, members)
	return r.PresenceStats, nil
}

func (c *Channels) apiHistory(ctx context.Context, p aboutChannel) (any, error) {
	if err := checkChannel(p.Channel); err != nil {
		return nil, centrifuge.Fail(centrifuge.BadRequest, err.Error())
	}
	if !c.keeps {
		return nil, centrifuge.Fail(centrifuge.NotAvailable, "no history is kept here")
	}
	page := pageOf(&centrifuge.HistoryRequest{Channel: p.Channel, Limit: p.Limit, Since: p.Since, Reverse: p.Reverse})
	h, err := await(ctx, func(done func(bus.History, error)) { c.hub.History(p.Channel, page.since(), page.ask(), done) })
	switch {
	case err != nil:
		return nil, centrifuge.Fail(centrifuge.Internal, "the history cannot be read now")
	case !page.reaches(h):
		return nil, centrifuge.Fail(centrifuge.Unrecoverable, "")
	}
	return c.pageResult(h, page, centrifuge.JSON, apiBody), nil
}

// apiChannels lists the channels that have subscribers on this server.
func (c *Channels) apiChannels(_ context.Context, p aboutChannel) (any, error) {
	list := map[string]any{}
	for name, subs := range c.hub.Channels() {
		if name != orders && (p.Pattern == "" || auth.Match(p.Pattern, name)) {
			list[name] = map[string]int{"num_clients": subs}
		}
	}
	return map[string]any{"channels": list}, nil
}

// apiInfo is about this server.
func (c *Channels) apiInfo(context.Context, aboutChannel) (any, error) {
	c.Measure()
	return map[string]any{"nodes": []map[string]any{{
		"uid": c.node, "name": c.node, "version": "",
		"num_clients": c.meters.Open.Load(), "num_subs": c.meters.Subscriptions.Load(), "num_channels": c.meters.Channels.Load(),
		"uptime": int(time.Since(c.started).Seconds()),
	}}}, nil
}

// A hub.Subscriber for orders, see orders.go.
var _ hub.Subscriber = (*orderTaker)(nil)
