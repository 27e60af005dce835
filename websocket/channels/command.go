package channels

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"millrace/store/bus"
)

// maxID is the most bytes that a command's id has, as it is written: it comes
// back with the answer.
const maxID = 128

// command is what a client says in one message: one of the first seven, with
// what belongs to it.
type command struct {
	Subscribe   *string `json:"subscribe"`
	Unsubscribe *string `json:"unsubscribe"`
	Publish     *string `json:"publish"`
	Presence    *string `json:"presence"`
	History     *string `json:"history"`
	Token       *string `json:"token"`
	Ping        bool    `json:"ping"`

	ID     json.RawMessage `json:"id"`
	Epoch  *string         `json:"epoch"`
	Offset *uint64         `json:"offset"`
	Joins  bool            `json:"joins"`
	Data   json.RawMessage `json:"data"`
	Limit  int             `json:"limit"`
}

// fault is an error in a client's command, with what the client is told.
type fault struct {
	code    code
	text    string
	channel string
}

// code tells programs what kind of error it is.
type code string

const (
	forbidden    code = "forbidden"    // the client may not do that
	unauthorized code = "unauthorized" // its token is wrong or expired
	notFound     code = "not_found"    // there is no such thing
	tooMany      code = "too_many"     // a bound of this client or server is reached
	badRequest   code = "bad_request"  // the command is not understood
	tooBig       code = "too_big"      // a publication is
	rate         code = "rate"         // more commands a second than allowed
	unavailable  code = "unavailable"  // not now: again later
	replaced     code = "replaced"     // a later subscribe or unsubscribe came first
)

// notAllowed is for a channel that the grant does not allow.
func notAllowed(channel string) *fault {
	return &fault{forbidden, "you may not subscribe to this channel", channel}
}

// Error implements error.
func (f *fault) Error() string { return f.text }

// parseCommand reads a command. With an error the command has its id if that
// much could be understood.
func parseCommand(text []byte) (command, *fault) {
	var c command
	err := json.Unmarshal(text, &c)
	if f := c.checkID(); f != nil {
		c.ID = nil
		if err == nil {
			return c, f
		}
	}
	if err != nil {
		return c, &fault{code: badRequest, text: explain(err)}
	}
	channel, n := "", 0
	for _, name := range []*string{c.Subscribe, c.Unsubscribe, c.Publish, c.Presence, c.History} {
		if name != nil {
			channel = *name
			n++
		}
	}
	if n > 0 {
		if err := checkChannel(channel); err != nil { // not told back: it may be as long as a message
			return c, &fault{code: badRequest, text: err.Error()}
		}
	}
	if c.Token != nil {
		n++
	}
	if c.Ping {
		n++
	}
	switch {
	case n == 0:
		return c, &fault{code: badRequest, text: "no command: send one of subscribe, unsubscribe, publish, presence, history, token and ping"}
	case n > 1:
		return c, &fault{code: badRequest, text: "more than one command in a message: send one at a time"}
	}
	return c, c.check(channel)
}

// check checks the members that only some commands have.
func (c *command) check(channel string) *fault {
	bad := func(text string) *fault { return &fault{badRequest, text, channel} }
	if (c.Subscribe != nil || c.History != nil) && (c.Offset != nil) != (c.Epoch != nil) {
		return bad("offset and epoch belong together: send both, as they came, or neither")
	}
	if c.History != nil && c.Limit < 0 {
		return bad("limit is negative")
	}
	if c.Publish == nil {
		return nil
	}
	if len(c.Data) == 0 {
		return bad("publish needs data: any JSON value")
	}
	var wrong string
	if c.Data, wrong = inLine(c.Data); wrong != "" {
		return bad(wrong)
	}
	return nil
}

// inLine brings data into one line. wrong says why it cannot be published.
func inLine(data []byte) (line []byte, wrong string) {
	if tooDeep(data) {
		return nil, deep
	}
	if !bytes.ContainsAny(data, " \t\r\n") {
		return data, ""
	}
	var b bytes.Buffer
	if json.Compact(&b, data) != nil {
		return nil, "data is not JSON"
	}
	return b.Bytes(), ""
}

// maxDepth is how deep the data of a publication may be nested: what the readers
// of all usual languages take (some stop at 64, with what is around it).
const maxDepth = 60

const deep = "the data is nested more than 60 deep, which not all clients can read"

// tooDeep looks at valid JSON.
func tooDeep(data []byte) bool {
	if len(data) <= 2*maxDepth {
		return false // not with what closes it again
	}
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case quoted:
		case c == '[' || c == '{':
			if depth++; depth > maxDepth {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}

func (c *command) checkID() *fault {
	if len(c.ID) == 0 {
		return nil
	}
	first := c.ID[0]
	if first != '"' && first != '-' && (first < '0' || first > '9') || len(c.ID) > maxID {
		return &fault{code: badRequest, text: fmt.Sprintf("id is a string or a number of at most %d bytes", maxID)}
	}
	return nil
}

// channel is what a good command is about; "" if it is about none.
func (c *command) channel() string {
	for _, name := range []*string{c.Subscribe, c.Unsubscribe, c.Publish, c.Presence, c.History} {
		if name != nil {
			return *name
		}
	}
	return ""
}

// since is the position behind which a subscription or a history continues; nil: none.
func (c *command) since() *bus.Position {
	if c.Offset == nil || c.Epoch == nil {
		return nil
	}
	return &bus.Position{Epoch: *c.Epoch, Offset: *c.Offset}
}

// explain says what is wrong with a message in the words of the protocol.
func explain(err error) string {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return `not JSON: send an object like {"subscribe":"news"}`
	case wrong.Field == "":
		return fmt.Sprintf(`a message is an object like {"subscribe":"news"}; this is of the type %s`, wrong.Value)
	}
	want := "a string"
	switch field, _, _ := strings.Cut(wrong.Field, "."); field {
	case "ping", "joins":
		want = "true or false"
	case "offset", "limit":
		want = "a whole number from 0 on"
	}
	return fmt.Sprintf("%s is %s", strings.ToLower(wrong.Field), want)
}
