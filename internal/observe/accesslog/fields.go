package accesslog

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// field is a member of a JSON line.
type field uint8

const (
	fieldTime field = iota
	fieldRemote
	fieldHost
	fieldMethod
	fieldTarget
	fieldPath
	fieldProto
	fieldScheme
	fieldStatus
	fieldBytes
	fieldDuration
	fieldReferer
	fieldUserAgent
	fieldRequestID
	fieldLane
)

var fieldNames = []string{
	"time", "remote", "host", "method", "target", "path", "proto", "scheme", "status", "bytes",
	"duration_us", "referer", "user_agent", "request_id", "lane",
}

// parseFields are the fields that the operator chose; nil: the usual ones.
func parseFields(names []string) (fields []field, err error) {
	for i, name := range names {
		at := slices.Index(fieldNames, name)
		switch {
		case at < 0:
			return nil, fmt.Errorf("%q is no field of the log: there are %s", name, strings.Join(fieldNames, ", "))
		case slices.Contains(names[:i], name):
			return nil, fmt.Errorf("%q is there twice", name)
		}
		fields = append(fields, field(at)) // fieldNames has as many as there are constants
	}
	if slices.Contains(fields, fieldPath) && slices.Contains(fields, fieldTarget) { // a line would be too long
		return nil, errors.New("the target has the path in it: leave out one of them")
	}
	return fields, nil
}

// appendFields appends the chosen fields as an object.
func appendFields(b []byte, fields []field, r *Record, c *clock) []byte {
	lead := byte('{')
	for _, f := range fields {
		b = append(b, lead, '"')
		lead = ','
		b = append(b, fieldNames[f]...)
		b = append(b, '"', ':')
		if f == fieldStatus || f == fieldBytes || f == fieldDuration {
			b = appendNumber(b, f, r)
			continue
		}
		b = append(b, '"')
		b = appendTextField(b, f, r, c)
		b = append(b, '"')
	}
	return append(b, '}')
}

func appendNumber(b []byte, f field, r *Record) []byte {
	switch f {
	case fieldStatus:
		return appendStatus(b, r.Status)
	case fieldBytes:
		return strconv.AppendInt(b, max(r.Bytes, 0), 10)
	default:
		return strconv.AppendInt(b, max(r.Duration, 0).Microseconds(), 10)
	}
}

func appendTextField(b []byte, f field, r *Record, c *clock) []byte {
	switch f {
	case fieldTime:
		return appendTime(b, r.Time, c)
	case fieldRemote:
		return appendJSONString(b, r.Remote, maxRemote)
	case fieldHost:
		return appendJSONString(b, r.Host, maxHost)
	case fieldMethod:
		return appendJSONString(b, r.Method, maxMethod)
	case fieldTarget:
		return appendJSONString(b, r.Target, maxTarget)
	case fieldPath:
		path, _, _ := strings.Cut(r.Target, "?")
		return appendJSONString(b, path, maxTarget)
	case fieldProto:
		return appendJSONString(b, r.Proto, maxProto)
	case fieldScheme:
		if r.Secure {
			return append(b, "https"...)
		}
		return append(b, "http"...)
	case fieldReferer:
		return appendJSONString(b, r.Referer, maxReferer)
	case fieldUserAgent:
		return appendJSONString(b, r.UserAgent, maxUserAgent)
	case fieldRequestID:
		return appendJSONString(b, r.ID, maxID)
	default:
		return append(b, r.lane()...)
	}
}

// appendTime appends a time as RFC 3339 has it, with milliseconds.
func appendTime(b []byte, t time.Time, c *clock) []byte {
	date, zone := c.rfc3339(t)
	b = append(b, date...)
	ms := t.Nanosecond() / int(time.Millisecond)
	b = append(b, '.', digits[ms/100], digits[ms/10%10], digits[ms%10])
	return append(b, zone...)
}
