package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"millrace/internal/lane"
	"millrace/static/original"
)

// folder is a source of originals that learns of changes when it is told.
type folder struct {
	dir string

	control    string      // Cache-Control; empty: max-age=300
	unreadable atomic.Bool // Open fails
	opened     atomic.Int64

	mu    sync.Mutex
	gen   lane.Generation
	young map[string]bool
}

func (f *folder) cacheControl() string { return cmp.Or(f.control, "max-age=300") }

func (f *folder) changed(name string, young bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.young == nil {
		f.young = map[string]bool{}
	}
	f.young[name] = young
	f.gen.Invalidate()
}

func (f *folder) Original(r *http.Request) (original.File, error) {
	mark := f.gen.Now()
	file, err := f.Lookup(strings.TrimPrefix(r.URL.Path, "/"))
	file.Generation = mark
	return file, err
}

func (f *folder) Lookup(name string) (original.File, error) {
	f.mu.Lock()
	young := f.young[name]
	f.mu.Unlock()
	p := filepath.Join(f.dir, filepath.FromSlash(name))
	info, err := os.Stat(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return original.File{}, fmt.Errorf("%w: %s", original.ErrNone, name)
	case err != nil:
		return original.File{}, err
	case young:
		return original.File{CacheControl: f.cacheControl()}, original.ErrYoung
	}
	return original.File{
		Name: name, Size: info.Size(), Modified: info.ModTime(), CacheControl: f.cacheControl(),
		Open: func() (io.ReadCloser, error) {
			f.opened.Add(1)
			if f.unreadable.Load() {
				return nil, fs.ErrPermission
			}
			return os.Open(p)
		},
	}, nil
}

func (f *folder) List(ctx context.Context, fn func(name string) error) error {
	return fs.WalkDir(os.DirFS(f.dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return fn(name)
	})
}

func (f *folder) Memory() *original.Memory { return nil }

func (f *folder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.ServeOriginal(w, r, original.Terms{})
}

func (f *folder) ServeOriginal(w http.ResponseWriter, r *http.Request, t original.Terms) {
	p := filepath.Join(f.dir, filepath.FromSlash(strings.TrimPrefix(r.URL.Path, "/")))
	file, err := os.Open(p)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Cache-Control", f.cacheControl())
	w.Header().Set("Etag", fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size()))
	maps.Copy(w.Header(), t.Header)
	http.ServeContent(w, r, p, info.ModTime(), file)
}
