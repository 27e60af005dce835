package s3

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"millrace/store"
)

// Walking asks for the front of each object: a listing has neither key nor head.
const (
	page    = 100     // objects whose fronts are held at once
	atOnce  = 8       // requests for fronts
	firstly = 4 << 10 // bytes of the first request for a front; most are smaller
)

// found is an object of a page.
type found struct {
	name string
	size int64
	front
	err error
}

// Walk calls fn, from one goroutine, with every object's key, head and size
// until it returns an error, which Walk returns. What is not ours is left out,
// and so is what is deleted meanwhile. It takes one request for each object.
func (s *Store) Walk(ctx context.Context, fn func(key string, head []byte, size int64) error) error {
	after := ""
	for {
		names, err := s.list(ctx, after)
		if err != nil {
			return fmt.Errorf("listing s3: %w", err)
		}
		s.fronts(ctx, names)
		for _, o := range names {
			switch {
			case errors.Is(o.err, store.ErrNotFound):
				continue
			case o.err != nil:
				return fmt.Errorf("listing s3: %w", o.err)
			case s.name(string(o.key)) != o.name:
				continue // a copy under another name
			}
			if err := fn(string(o.key), o.head, o.front.size); err != nil {
				return err
			}
		}
		if len(names) < page {
			return nil
		}
		after = names[len(names)-1].name
	}
}

// list returns a page of objects, those after a name.
func (s *Store) list(ctx context.Context, after string) (names []*found, err error) {
	err = s.call(ctx, 0, func(ctx context.Context, _ func(int64)) error {
		names, err = s.client.list(ctx, after, page)
		return err
	})
	return names, err
}

// fronts reads those of a page, and waits for all.
func (s *Store) fronts(ctx context.Context, names []*found) {
	var all sync.WaitGroup
	next := make(chan *found)
	for range min(atOnce, len(names)) {
		all.Go(func() {
			for o := range next {
				o.front, o.err = s.front(ctx, o)
			}
		})
	}
	for _, o := range names {
		next <- o
	}
	close(next)
	all.Wait()
}

// front reads the front of an object, in two requests if it is a large one.
func (s *Store) front(ctx context.Context, o *found) (f front, err error) {
	if o.size < preamble {
		return f, errForeign
	}
	n := min(firstly, o.size)
	for range 2 {
		var b []byte
		if b, err = s.part(ctx, o.name, n); err != nil {
			return f, err
		}
		f, err = readFront(bytes.NewReader(b), o.size)
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return f, err
		}
		n = preamble + int64(binary.LittleEndian.Uint32(b[4:])) + int64(binary.LittleEndian.Uint32(b[8:]))
	}
	return f, errDamaged // it was replaced between the two
}

// part reads the first n bytes of an object.
func (s *Store) part(ctx context.Context, name string, n int64) (b []byte, err error) {
	err = s.call(ctx, 0, func(ctx context.Context, _ func(int64)) error {
		body, _, err := s.client.get(ctx, name, n)
		if err != nil {
			return err
		}
		defer body.Close()
		b = make([]byte, n)
		if _, err = io.ReadFull(body, b); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errDamaged // it was replaced by a smaller one
		}
		return err
	})
	return b, err
}
