package wscmd

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxEvent is the most bytes that an event's data, and a line of a stream, may
// have: a publication and what is around it.
const maxEvent = maxPublished + maxPublished/8

// event is one of a stream of them (WHATWG HTML, 9.2).
type event struct {
	id, name, data string
}

// events reads a stream.
type events struct {
	r       *bufio.Reader
	started bool
	cr      bool // the last line ended in CR: an LF right behind it belongs to it
	// id is that of the latest event, with data or without: where to go on. An
	// event without one has that of the event before.
	id string
}

func newEvents(r io.Reader) *events { return &events{r: bufio.NewReader(r)} }

// next is the next event with data. An event that the end of the stream cuts
// off is none.
func (s *events) next() (event, error) {
	var e event
	var data strings.Builder
	some, id := false, s.id
	for {
		line, err := s.line()
		if err != nil {
			return event{}, err
		}
		if line == "" {
			s.id = id
			if !some {
				e.name = "" // a name alone is not an event
				continue
			}
			e.id, e.data = s.id, strings.TrimSuffix(data.String(), "\n")
			return e, nil
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			if data.Len()+len(value) > maxEvent {
				return event{}, fmt.Errorf("an event of the stream is larger than %d MiB", maxEvent>>20)
			}
			data.WriteString(value + "\n")
			some = true
		case "event":
			e.name = value
		case "id":
			if !strings.Contains(value, "\x00") {
				id = value
			}
		}
	}
}

// line is the next one without its end: CR, LF or both.
func (s *events) line() (string, error) {
	var line []byte
	for {
		c, err := s.r.ReadByte()
		after := s.cr
		s.cr = c == '\r'
		switch {
		case err != nil:
			return "", err
		case c == '\n' && after && len(line) == 0:
			continue
		case c == '\r' || c == '\n':
			return s.finish(line), nil
		case len(line) == maxEvent:
			return "", errors.New("a line of the stream does not end")
		}
		line = append(line, c)
	}
}

func (s *events) finish(line []byte) string {
	if !s.started {
		s.started = true
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	return string(line)
}
