package purge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The saved form: header, a record of the clock, records of what was purged,
// one that ends them with their number, and then whatever Record has added.
// A record is
//
//	kind    1 byte
//	soft    uvarint
//	hard    uvarint
//	length  uvarint
//	text    that many bytes
//	CRC-32C of all that, 4 bytes, little endian
//
// A file that was cut short or damaged is refused as a whole: believing the
// rest would bring purged objects back.
const header = "millrace purges 1\n"

const (
	kindClock = 'c' // soft is the clock
	kindEnd   = 'e' // soft is the number of records between
	kindRun   = 'r' // the text is what Index.Run says
	// kindUnsure is of the moment (soft) up to which nothing is sure. To versions that do
	// not know the kind it is a soft purge of everything.
	kindUnsure = '?'
)

// errDamaged tells nothing to a user but that it is.
var errDamaged = errors.New("the record of purges is damaged")

// Save and Restore keep the index across a restart, so that objects on disk
// that were purged stay purged. Save holds every purge that returned before it
// began. It stops other calls for no more than a few microseconds at a time.
func (b *Index) Save() []byte {
	b.mu.RLock()
	defer b.mu.RUnlock()
	out := append([]byte(nil), header...)
	out = appendRecord(out, kindClock, "", times{soft: Time(b.clock.Load())})
	// All that is collected here is never changed but under mu, and what is
	// forgotten from now on stays reachable: a superset does no harm.
	type names struct {
		kind  byte
		names map[string]times
	}
	maps := []names{
		{kindHost, b.hosts.old.names},
		{kindHost, b.hosts.young.names},
		{kindTag, b.tags.old.names},
		{kindTag, b.tags.young.names},
		{kindURL, b.urls.old.names},
		{kindURL, b.urls.young.names},
	}
	out = appendRecord(out, kindAll, "", b.all)
	// What an index that was not restored says of old objects holds in its next life.
	out = appendRecord(out, kindUnsure, "", times{soft: b.base})
	out = appendRecord(out, kindRun, b.run, times{})
	count := 3
	for _, p := range b.globs.list {
		out = appendRecord(out, p.kind, p.text, p.times)
		count++
	}
	for _, n := range maps {
		for name, m := range n.names {
			out = appendRecord(out, n.kind, name, m)
			// A purge waits for the lock, and everybody else behind it. The
			// loop may go on over a map that has grown meanwhile.
			if count++; count%256 == 0 {
				b.mu.RUnlock()
				b.mu.RLock()
			}
		}
	}
	return appendRecord(out, kindEnd, "", times{soft: Time(count)})
}

// Record is one purge, in the form to be appended to what Save returned: s as
// it was given to Purge, t as it came back.
func Record(s Selector, t Time) []byte {
	e, err := s.entry()
	if err != nil {
		e = entry{kind: kindAll}
	}
	text := e.text
	if e.kind == kindTag || e.kind == kindURL {
		text = short(text)
	}
	return appendRecord(nil, e.kind, text, timesOf(s.Hard, t))
}

func appendRecord(out []byte, kind byte, text string, m times) []byte {
	from := len(out)
	out = append(out, kind)
	out = binary.AppendUvarint(out, uint64(m.soft))
	out = binary.AppendUvarint(out, uint64(m.hard))
	out = binary.AppendUvarint(out, uint64(len(text)))
	out = append(out, text...)
	return binary.LittleEndian.AppendUint32(out, crc32.Checksum(out[from:], crc32.MakeTable(crc32.Castagnoli)))
}

type record struct {
	kind  byte
	text  string
	times times
}

// Restore loads what Save wrote, and what was appended to it; with an error the
// index is Unsure of everything from before. It must come before the first Now.
func (b *Index) Restore(saved []byte) error {
	records, clock, err := parse(saved)
	if err != nil {
		return fmt.Errorf("restoring what was purged: %w; cached answers from before will be checked with their origin", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if Time(b.clock.Load()) != b.start {
		return errors.New("restoring what was purged: the index is in use already")
	}
	b.base = 0
	for _, r := range records {
		if r.kind == kindRun {
			b.run = r.text
			continue
		}
		clock = max(clock, r.times.latest())
		if r.kind == kindUnsure {
			b.base = max(b.base, r.times.soft)
			continue
		}
		e, err := restored(r)
		if err != nil {
			// From a version with other rules: what is not understood counts for everything.
			e = entry{kind: kindAll}
		}
		b.note(e, r.times)
	}
	b.clock.Store(uint64(max(b.start, clock+1)))
	return nil
}

// restored is the entry of a record. Names are in their normal form, or hashed.
func restored(r record) (entry, error) {
	if r.text != "" && r.text[0] == 0 && (r.kind == kindTag || r.kind == kindURL || r.kind == kindHost) {
		return entry{kind: r.kind, text: r.text}, nil
	}
	return parseEntry(r.kind, r.text)
}

func parse(saved []byte) (records []record, clock Time, err error) {
	if len(saved) < len(header) || string(saved[:len(header)]) != header {
		return nil, 0, errDamaged
	}
	saved = saved[len(header):]
	ended := false
	for first := true; len(saved) > 0; first = false {
		var r record
		if r, saved, err = next(saved); err != nil {
			return nil, 0, err
		}
		switch {
		case first != (r.kind == kindClock):
			return nil, 0, errDamaged
		case first:
			clock = r.times.soft
		case r.kind == kindEnd:
			if ended || r.times.soft != Time(len(records)) {
				return nil, 0, errDamaged
			}
			ended = true
		default:
			records = append(records, r)
		}
	}
	if !ended {
		return nil, 0, errDamaged
	}
	return records, clock, nil
}

// next reads one record. A number that leaves no room to count on is refused.
func next(in []byte) (r record, rest []byte, err error) {
	at := 1
	var numbers [3]uint64
	for i := range numbers {
		if at > len(in) {
			return r, nil, errDamaged
		}
		v, n := binary.Uvarint(in[at:])
		if n <= 0 || v > 1<<63 {
			return r, nil, errDamaged
		}
		numbers[i], at = v, at+n
	}
	length := numbers[2]
	if length > uint64(len(in)-at) || len(in)-at-int(length) < 4 {
		return r, nil, errDamaged
	}
	end := at + int(length)
	if crc32.Checksum(in[:end], crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(in[end:]) {
		return r, nil, errDamaged
	}
	r = record{in[0], string(in[at:end]), times{Time(numbers[0]), Time(numbers[1])}}
	return r, in[end+4:], nil
}
