package centrifuge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// Form is how messages are written.
type Form uint8

// The forms. A client chooses by the subprotocol of its WebSocket, or by the type of
// what it sends.
const (
	JSON Form = iota
	Protobuf
	// Uni is JSON for clients that only listen: a push without the reply around it, and
	// a connect without an id. What such a client says is one ConnectRequest.
	Uni
)

// Forms is how many there are.
const Forms = 3

// Subprotocol is what a client offers that speaks protobuf (RFC 6455, 1.9).
const Subprotocol = "centrifuge-protobuf"

// errFrame is a frame in which no command can be found.
var errFrame = errors.New("the frame holds no command")

// Commands calls do for each command of a frame, until it returns false. Nothing of a
// command lies in the frame.
func (f Form) Commands(data []byte, do func(c *Command) bool) error {
	if len(data) == 0 {
		return errFrame
	}
	for len(data) > 0 {
		var c Command
		var err error
		if f == Protobuf {
			data, err = f.split(data, &c)
		} else {
			line, rest, _ := bytes.Cut(data, []byte{'\n'})
			data, err = rest, json.Unmarshal(line, &c)
		}
		if err != nil {
			return fmt.Errorf("a command cannot be read: %w", err)
		}
		if !do(&c) {
			return nil
		}
	}
	return nil
}

// split reads the first message of a frame in protobuf, and returns the others.
func (Form) split(data []byte, m message) (rest []byte, err error) {
	one, n := protowire.ConsumeBytes(data)
	if n < 0 {
		return nil, protowire.ParseError(n)
	}
	return data[n:], read(one, m)
}

// Append adds a reply as a frame has it. In JSON the caller puts a line break
// between two.
func (f Form) Append(b []byte, r *Reply) []byte {
	if f == Uni && r.Push != nil {
		return f.append(b, r.Push)
	}
	return f.append(b, r)
}

func (f Form) append(b []byte, m message) []byte {
	if f == Protobuf {
		p := pass{}
		m.fields(&p)
		return protowire.AppendBytes(b, p.out)
	}
	w := bytes.NewBuffer(b)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		panic("centrifuge: " + err.Error()) // what it is given has been checked
	}
	return bytes.TrimSuffix(w.Bytes(), []byte{'\n'})
}

// Emulation is what a client says to its stream, in a request of its own.
type Emulation struct {
	Node    string `json:"node"`
	Session string `json:"session"`
	Data    []byte `json:"-"` // commands
}

func (m *Emulation) fields(p *pass) {
	text(p, 1, &m.Node)
	text(p, 2, &m.Session)
	raw(p, 3, (*Raw)(&m.Data))
}

// Emulation reads one. In JSON the commands are a text.
func (f Form) Emulation(body []byte) (*Emulation, error) {
	m := new(Emulation)
	if f == Protobuf {
		if err := read(body, m); err != nil {
			return nil, fmt.Errorf("the request cannot be read: %w", err)
		}
		return m, nil
	}
	var with struct {
		*Emulation
		Data string `json:"data"`
	}
	with.Emulation = m
	if err := json.Unmarshal(body, &with); err != nil {
		return nil, fmt.Errorf("the request cannot be read: %w", err)
	}
	m.Data = []byte(with.Data)
	return m, nil
}

// Error numbers of replies.
const (
	Internal         uint32 = 100
	Unauthorized     uint32 = 101
	PermissionDenied uint32 = 103
	AlreadyThere     uint32 = 105
	LimitExceeded    uint32 = 106
	BadRequest       uint32 = 107
	NotAvailable     uint32 = 108
	TokenExpired     uint32 = 109
	TooManyRequests  uint32 = 111
	Unrecoverable    uint32 = 112
)

// Fail is the error of a number, with what there is to say besides: "permission
// denied: you may not subscribe to this channel".
func Fail(code uint32, detail string) *Error {
	e := &Error{Code: code, Temporary: code == Internal || code == TooManyRequests}
	switch code {
	case Internal:
		e.Message = "internal server error"
	case Unauthorized:
		e.Message = "unauthorized"
	case PermissionDenied:
		e.Message = "permission denied"
	case AlreadyThere:
		e.Message = "already subscribed"
	case LimitExceeded:
		e.Message = "limit exceeded"
	case BadRequest:
		e.Message = "bad request"
	case NotAvailable:
		e.Message = "not available"
	case TokenExpired:
		e.Message = "token expired"
	case TooManyRequests:
		e.Message = "too many requests"
	case Unrecoverable:
		e.Message = "unrecoverable position"
	default:
		e.Message = "error " + strconv.FormatUint(uint64(code), 10)
	}
	if detail != "" {
		e.Message += ": " + detail
	}
	return e
}

// Codes of close frames. A client comes back by itself after those below 3500, and
// does not after the others.
const (
	CloseShutdown    = 3001
	CloseServerError = 3004
	CloseExpired     = 3005
	CloseSlow        = 3008
	CloseState       = 3010 // something was missed in a subscription that the server has made
	CloseTooMany     = 3013
	CloseToken       = 3500
	CloseBadRequest  = 3501
	CloseStale       = 3502 // no connect came
	CloseForced      = 3503 // by the server API
	CloseChannels    = 3505
	CloseDenied      = 3507
	CloseUnavailable = 3508
)

// ComesBack reports whether a client comes back by itself after a code.
func ComesBack(code uint32) bool {
	return code < 3500 || code >= 4000 && code < 4500 || code >= 5000
}

// Codes of Unsubscribe. After those from 2500 on a client subscribes again.
const (
	UnsubscribeServer  = 2000
	UnsubscribeMissed  = 2500 // something may have been missed
	UnsubscribeExpired = 2501
)
