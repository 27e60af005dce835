package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"millrace/static/original"
	"millrace/store"
)

// file is the head of what is kept, as JSON. It is never changed.
type file struct {
	Remote   int           `json:"remote"` // the form's version; other heads in the store have no such key
	URL      string        `json:"url"`
	Hash     string        `json:"hash"` // of the content: half of its SHA-256
	Size     int64         `json:"size"`
	Type     string        `json:"type"` // of media; what the host said, or what the content looks like
	ETag     string        `json:"etag,omitempty"`
	Modified time.Time     `json:"modified,omitzero"` // what the host said
	Fetched  time.Time     `json:"fetched"`
	Fresh    time.Duration `json:"fresh"`
}

const version = 1

// same reports whether two have the same content, by all that is known of it.
func (f *file) same(other *file) bool {
	return f.Hash == other.Hash && f.Size == other.Size && f.Type == other.Type && f.Modified.Equal(other.Modified)
}

// key is where a name's file is kept. With a character that is in no URL, it
// is nobody else's.
func (s *Source) key(name string) string { return "remote\x00" + s.url(name).String() }

// load reads what is kept of a file, or nil.
func (s *Source) load(ctx context.Context, name string) (*file, error) {
	o, f, err := s.open(ctx, name)
	if err != nil {
		return nil, err
	}
	_ = o.Close() // only read
	return f, nil
}

// open opens what is kept under a name.
func (s *Source) open(ctx context.Context, name string) (*store.Object, *file, error) {
	o, err := s.keep.Get(ctx, s.key(name))
	if err != nil {
		return nil, nil, err
	}
	f := new(file)
	if err := json.Unmarshal(o.Head, f); err != nil || f.Remote != version || f.Size != o.Size || f.URL != s.url(name).String() {
		_ = o.Close() // only read
		return nil, nil, fmt.Errorf("%w: a head that we have not written", store.ErrNotFound)
	}
	return o, f, nil
}

// openThis opens the body of one file, or fails if another is kept by now.
func (s *Source) openThis(ctx context.Context, name string, f *file) (*store.Object, error) {
	o, now, err := s.open(ctx, name)
	if err == nil && !now.same(f) {
		_ = o.Close() // only read
		err = fmt.Errorf("%w: another content is", store.ErrNotFound)
	}
	if errors.Is(err, store.ErrNotFound) {
		s.lost(name, f)
	}
	return o, err
}

// body is an open object as a stream.
type body struct {
	io.Reader
	o *store.Object
}

// Close implements io.Closer.
func (b body) Close() error { return b.o.Close() }

// original is a file as other jobs see it.
func (s *Source) original(name string, f found) original.File {
	return original.File{
		Name: name, Size: f.Size, Modified: f.Modified, Version: f.Hash,
		Generation: f.version, CacheControl: cacheControl(f.fresh),
		Open: func() (io.ReadCloser, error) {
			o, err := s.openThis(s.closing, name, f.file)
			if err != nil {
				return nil, fmt.Errorf("opening what was kept of %s: %w", name, err)
			}
			return body{io.NewSectionReader(o.Body, 0, o.Size), o}, nil
		},
	}
}
