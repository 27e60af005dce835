package object

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"millrace/cache/purge"
	"millrace/cache/rfc9111"
)

// Record is the head of an object in the slower tiers, in JSON: it is read
// once per answer that comes back from there, and can be looked at.
type Record struct {
	Version int                 `json:"v"`
	Varies  [][]string          `json:"varies,omitempty"` // an index: nothing but where the variants are
	Status  int                 `json:"status,omitempty"`
	Header  map[string][]string `json:"header,omitempty"`
	Facts   rfc9111.Facts       `json:"facts,omitzero"`
	Vary    []string            `json:"vary,omitempty"`
	By      []string            `json:"by,omitempty"`
	URL     string              `json:"url,omitempty"`
	Host    string              `json:"host,omitempty"`
	Tags    []string            `json:"tags,omitempty"`
	At      purge.Time          `json:"at,omitempty"`
	Epoch   string              `json:"epoch,omitempty"` // see package purger
	Rule    string              `json:"rule,omitempty"`
	Stamp   int64               `json:"stamp,omitempty"`
	Size    int64               `json:"size,omitempty"`  // of the body, in bytes
	Bytes   bool                `json:"bytes,omitempty"` // texts are bytes, each written as the character of its number
}

const recordVersion = 1

var errRecord = errors.New("not a record of this version")

// stamp is the object's: a 304 has given it new facts since.
func (rec *Record) stamp() int64 {
	if rec.Stamp != 0 {
		return rec.Stamp
	}
	return rec.Facts.Received.UnixNano()
}

// Encode makes the record of an object; epoch is its place in the order of purges
// that several machines share, and ahead is by how much this machine's clock is ahead of the
// one whose times the record has.
func (o *Object) Encode(epoch string, ahead time.Duration) ([]byte, error) {
	rec := Record{
		Version: recordVersion, Status: o.Status, Header: o.Header(), Facts: o.Facts, Vary: o.Vary, By: o.By,
		URL: o.Owner.URL, Host: o.Owner.Host, Tags: o.Owner.Tags, At: o.Owner.At, Epoch: epoch, Rule: o.Rule, Stamp: o.Stamp,
		Size: o.Size,
	}
	rec.Facts.Received = rec.Facts.Received.Add(-ahead)
	if !rec.texts(func(s string) (string, bool) { return s, utf8.ValidString(s) }) {
		// JSON would replace what is not UTF-8, such as the Latin-1 of old servers.
		rec.Bytes = true
		rec.texts(func(s string) (string, bool) {
			runes := make([]rune, len(s))
			for i := range len(s) {
				runes[i] = rune(s[i])
			}
			return string(runes), true
		})
	}
	return json.Marshal(rec)
}

// texts replaces all texts that came from outside, until f says false.
func (rec *Record) texts(f func(string) (string, bool)) bool {
	list := func(old []string) ([]string, bool) {
		fresh := slices.Clone(old)
		for i, s := range old {
			var ok bool
			if fresh[i], ok = f(s); !ok {
				return nil, false
			}
		}
		return fresh, true
	}
	header := make(map[string][]string, len(rec.Header))
	for name, values := range rec.Header {
		values, ok := list(values)
		if !ok {
			return false
		}
		header[name] = values
	}
	by, ok1 := list(rec.By)
	tags, ok2 := list(rec.Tags)
	url, ok3 := f(rec.URL)
	host, ok4 := f(rec.Host)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return false
	}
	rec.Header, rec.By, rec.Tags, rec.URL, rec.Host = header, by, tags, url, host
	return true
}

// DecodeRecord reads a head. What was written by another version is not there.
func DecodeRecord(head []byte) (*Record, error) {
	var rec Record
	if err := json.Unmarshal(head, &rec); err != nil {
		return nil, fmt.Errorf("reading the head of a stored answer: %w", err)
	}
	if rec.Version != recordVersion || len(rec.Vary) != len(rec.By) || rec.Varies == nil && (rec.Status < 200 || rec.Status > 599) {
		return nil, errRecord
	}
	if rec.Bytes && !rec.texts(func(s string) (string, bool) {
		b := make([]byte, 0, len(s))
		for _, r := range s {
			if r > 0xff {
				return "", false
			}
			b = append(b, byte(r))
		}
		return string(b), true
	}) {
		return nil, errRecord
	}
	return &rec, nil
}

// Object makes an object, without its body, of a record.
func (rec *Record) Object(size int64) *Object {
	o := &Object{
		Status: rec.Status, Fields: FieldsOf(rec.Header), Size: size, Facts: rec.Facts, Vary: rec.Vary, By: rec.By, Rule: rec.Rule,
		Stamp: rec.stamp(),
		Owner: purge.Object{URL: rec.URL, Host: rec.Host, Tags: rec.Tags, At: rec.At},
	}
	o.Kept.Store(true)
	return o
}

// Whole reports whether a body of a size is the record's: a value that somebody has cut off is
// not.
func (rec *Record) Whole(size int64) bool { return rec.Size == 0 || rec.Size == size }

// EncodeSets makes the record that says by which sets of fields the variants of a
// key are filed.
func EncodeSets(sets [][]string) ([]byte, error) {
	return json.Marshal(Record{Version: recordVersion, Varies: sets})
}

// Holds reports whether the body beside a record is the object's: both came with
// the same answer.
func (rec *Record) Holds(o *Object) bool { return rec.stamp() == o.Stamp }
