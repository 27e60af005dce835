package spool

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"millrace/internal/process/gogc"
)

func newRoom(t *testing.T, o Options) *Room {
	t.Helper()
	o.Folder = t.TempDir()
	r := NewRoom(o, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if memory, disk := r.Used(); memory != 0 || disk != 0 {
			t.Errorf("%d bytes of memory and %d of disk are still taken", memory, disk)
		}
		if left, err := os.ReadDir(o.Folder); err != nil || len(left) > 0 {
			t.Errorf("files are left: %v, %v", left, err)
		}
	})
	return r
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// TestWhole: what was filled before comes out again, from memory and file.
func TestWhole(t *testing.T) {
	for _, n := range []int{0, 1, chunk - 1, chunk, chunk + 1, 10*chunk + 7} {
		q := newRoom(t, Options{}).NewQueue(3*chunk, 1<<20)
		want := random(n)
		if err := q.Fill(iotest.HalfReader(bytes.NewReader(want)), false); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(q)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %d came out (%v), and not the same", n, len(got), err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestWaits: where somebody waits, a body goes through bounds that are smaller
// than it, also through those of all.
func TestWaits(t *testing.T) {
	for name, o := range map[string]Options{"own bounds": {}, "no space at all": {Memory: 1, Disk: 1}} {
		t.Run(name, func(t *testing.T) {
			q := newRoom(t, o).NewQueue(2*chunk, 3*chunk)
			want := random(50*chunk + 1)
			done := make(chan error)
			go func() { done <- q.Fill(bytes.NewReader(want), true) }()
			got, err := io.ReadAll(q)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes came out (%v), and not the same", len(got), err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			_ = q.Close()
		})
	}
}

// TestLate: it is told once that a reader has fallen behind, and answers go to files
// no faster than all together may.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, Options{})
		const each, all = 32 << 20, 16
		began := time.Now()
		var told atomic.Int64
		var filling sync.WaitGroup
		for range all {
			q := r.NewQueue(2*chunk, each)
			q.OnLate(func() { told.Add(1) })
			filling.Go(func() {
				if err := q.Fill(bytes.NewReader(make([]byte, each)), true); err != nil {
					t.Error(err)
				}
			})
			t.Cleanup(func() { _ = q.Close() })
		}
		filling.Wait()
		if took := time.Since(began); took < 17*time.Second/10 || took > 3*time.Second {
			t.Errorf("%d MiB went to files in %v", all*each>>20, took)
		}
		if told.Load() != all {
			t.Errorf("%d of %d were told", told.Load(), all)
		}
	})
}

// TestFull: who does not wait is told that there is no space.
func TestFull(t *testing.T) {
	q := newRoom(t, Options{Memory: 2 * chunk, Disk: chunk}).NewQueue(1<<20, 1<<20)
	if err := q.Fill(bytes.NewReader(random(5*chunk)), false); !errors.Is(err, ErrFull) {
		t.Errorf("got %v", err)
	}
	_ = q.Close()
}

// TestLong: one body may be as long as its file, and the queue knows how long it was.
func TestLong(t *testing.T) {
	for n, want := range map[int]error{5 * chunk: nil, 5*chunk + 1: ErrLong} {
		q := newRoom(t, Options{}).NewQueue(chunk, 5*chunk)
		if err := q.Fill(bytes.NewReader(random(n)), false); !errors.Is(err, want) || want == nil && q.Size() != int64(n) {
			t.Errorf("%d bytes: %v, and a size of %d", n, err, q.Size())
		}
		_ = q.Close()
	}
}

// TestNoFile: a folder that takes no files is like a full disk, and is logged.
func TestNoFile(t *testing.T) {
	var log strings.Builder
	r := NewRoom(Options{Folder: t.TempDir() + "/none"}, slog.New(slog.NewTextHandler(&log, nil)))
	q := r.NewQueue(chunk, 1<<20)
	if err := q.Fill(bytes.NewReader(random(5*chunk)), false); !errors.Is(err, ErrFull) {
		t.Errorf("got %v", err)
	}
	_ = q.Close()
	if !strings.Contains(log.String(), "no such file") {
		t.Errorf("logged: %s", log.String())
	}
}

// TestClose ends who waits for space.
func TestClose(t *testing.T) {
	q := newRoom(t, Options{}).NewQueue(chunk, 1)
	done := make(chan error)
	go func() { done <- q.Fill(bytes.NewReader(random(5*chunk)), true) }()
	if _, err := q.next(true); err != nil {
		t.Error(err)
	}
	_ = q.Close()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// TestBreaksOff: what came before is read, then the error.
func TestBreaksOff(t *testing.T) {
	q := newRoom(t, Options{}).NewQueue(chunk, 1<<20)
	broke := errors.New("broke off")
	if err := q.Fill(io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broke)), true); !errors.Is(err, broke) {
		t.Errorf("got %v", err)
	}
	if got, err := io.ReadAll(q); string(got) != "half" || !errors.Is(err, broke) {
		t.Errorf("got %q, %v", got, err)
	}
	_ = q.Close()
}

// TestHeldCounts: what is being written counts until it is, wherever it was.
func TestHeldCounts(t *testing.T) {
	r := newRoom(t, Options{Memory: 4 * chunk})
	q := r.NewQueue(1<<20, 1<<20)
	space := r.Space()
	q.Begin(space, copy(*space, random(chunk)))
	if err := q.Fill(bytes.NewReader(random(2*chunk)), true); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{2 * chunk, chunk, chunk} { // the last piece is in the file
		if _, err := q.next(true); err != nil {
			t.Fatal(err)
		}
		if got, _ := r.Used(); got != want {
			t.Errorf("with piece %d: %d bytes, want %d", i, got, want)
		}
	}
	if _, err := q.next(true); err != io.EOF { //nolint:errorlint // it is not wrapped
		t.Error(err)
	}
	if got, _ := r.Used(); got != 0 {
		t.Errorf("%d bytes at the end", got)
	}
	_ = q.Close()
}

// TestShort: where slow readers have their half of the memory, one more holds a small
// piece of its file, and uploads have the rest.
func TestShort(t *testing.T) {
	r := newRoom(t, Options{Memory: 4 * chunk})
	full := r.NewQueue(1<<20, 1<<20)
	if err := full.Fill(bytes.NewReader(random(3*chunk)), true); err != nil {
		t.Fatal(err)
	}
	q, want := r.NewQueue(1<<20, 1<<20), random(3*chunk+1)
	space := r.Space()
	q.Begin(space, copy(*space, want))
	if err := q.Fill(bytes.NewReader(want[chunk:]), true); err != nil {
		t.Fatal(err)
	}
	b, err := q.next(true)
	if used, _ := r.Used(); len(b) != small || err != nil || used != 2*chunk {
		t.Errorf("%d bytes, %v, of %d", len(b), err, used)
	}
	got := append([]byte(nil), b...)
	rest, err := io.ReadAll(q)
	if got = append(got, rest...); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes came out (%v), and not the same", len(got), err)
	}
	upload := r.NewQueue(1<<20, 1<<20)
	if err := upload.Fill(bytes.NewReader(random(2*chunk)), false); err != nil {
		t.Error(err)
	}
	if used, disk := r.Used(); used != 4*chunk || disk != chunk {
		t.Errorf("%d bytes of memory, %d of files", used, disk)
	}
	for _, q := range []*Queue{full, q, upload} {
		_ = q.Close()
	}
}

// pieces is a writer that takes several pieces at once, and a reader's bytes.
type pieces struct {
	bytes.Buffer
	most int // at once
	read int // by ReadFrom
}

func (p *pieces) WriteBuffers(b *net.Buffers) (int64, error) {
	p.most = max(p.most, len(*b))
	return b.WriteTo(&p.Buffer)
}

func (p *pieces) ReadFrom(r io.Reader) (int64, error) {
	p.read++
	return p.Buffer.ReadFrom(r)
}

// TestWriteTo: what was filled before writes itself, from memory and file, to every kind of
// writer, and a queue gives back what it has written.
func TestWriteTo(t *testing.T) {
	for _, n := range []int{0, 1, chunk, chunk + 1, 6 * chunk, 7*chunk + 5, 20 * chunk} {
		r := newRoom(t, Options{})
		q := r.NewQueue(6*chunk, 2<<20)
		want := random(n)
		if err := q.Fill(bytes.NewReader(want), false); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			to := new(pieces)
			m, err := q.Reader().WriteTo(to)
			if err != nil || m != int64(n) || !bytes.Equal(to.Bytes(), want) {
				t.Errorf("%d bytes: %d came out (%v), and not the same", n, m, err)
			}
			if n > 2*chunk && to.most < 2 || (to.read > 0) != (n > 6*chunk) {
				t.Errorf("%d bytes: at most %d pieces at once, and %d reads of the file", n, to.most, to.read)
			}
		}
		half := q.Reader()
		begun := make([]byte, min(n, 7*chunk/2))
		if _, err := io.ReadFull(half, begun); err != nil {
			t.Fatal(err)
		}
		rest := new(strings.Builder) // which has no ReadFrom
		if _, err := half.WriteTo(rest); err != nil || string(begun)+rest.String() != string(want) {
			t.Errorf("%d bytes: what is left behind half of it is not the same (%v)", n, err)
		}
		to := new(bytes.Buffer)
		if m, err := q.WriteTo(to); err != nil || m != int64(n) || !bytes.Equal(to.Bytes(), want) {
			t.Errorf("%d bytes: the queue has written %d (%v), and not the same", n, m, err)
		}
		if memory, _ := r.Used(); memory != 0 {
			t.Errorf("%d bytes of memory are taken behind the end", memory)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestWriteToEnds: an error of the writer ends it, and a queue that was closed writes nothing.
func TestWriteToEnds(t *testing.T) {
	q := newRoom(t, Options{}).NewQueue(6*chunk, 1<<20)
	if err := q.Fill(bytes.NewReader(random(9*chunk)), false); err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	for _, after := range []int{0, 3 * chunk, 7 * chunk} {
		w := &shortWriter{after, full}
		if n, err := q.Reader().WriteTo(w); !errors.Is(err, full) || n > int64(after) {
			t.Errorf("behind %d bytes: %d, %v", after, n, err)
		}
	}
	_ = q.Close()
	if _, err := q.WriteTo(io.Discard); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// shortWriter takes so many bytes.
type shortWriter struct {
	left int
	err  error
}

func (w *shortWriter) Write(b []byte) (int, error) {
	if len(b) > w.left {
		return 0, w.err
	}
	w.left -= len(b)
	return len(b), nil
}

// TestMemory: what nobody has set follows the machine, within bounds; what is set counts.
func TestMemory(t *testing.T) {
	most := newRoom(t, Options{}).limits.Load().memory
	if most < leastMemory || most > mostMemory || gogc.Memory() > memoryShare*mostMemory && most != mostMemory {
		t.Errorf("%d of %d", most, gogc.Memory())
	}
	if most := newRoom(t, Options{Memory: 1 << 20}).limits.Load().memory; most != 1<<20 {
		t.Errorf("%d", most)
	}
}
