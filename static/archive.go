package static

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"
	"time"
)

const (
	// maxArchives bounds the archives that are made at once: each takes a core.
	maxArchives = 2
	// archiveTime is how long a client may take for one: slow ones would keep the
	// places from all others.
	archiveTime = 15 * time.Minute
	// maxArchived and maxArchiveBytes bound one of them.
	maxArchived     = 10_000
	maxArchiveBytes = 1 << 30
)

// errTooLarge ends the walk through a folder that is not sent whole.
var errTooLarge = errors.New("too large for an archive")

// archived is a file that goes into an archive.
type archived struct {
	tree *tree
	file string // below its root
	name string // in the archive
	size int64
	date time.Time
}

// archiver writes files one after the other.
type archiver interface {
	add(a archived, compressible bool) (io.Writer, error)
	close() error
}

// archive sends a folder as one file while it is read.
func (h *Handler) archive(w http.ResponseWriter, r *http.Request, name, kind string) {
	types := map[string]string{"zip": "application/zip", "tar.gz": "application/gzip"}
	if types[kind] == "" {
		respondStatus(w, r, http.StatusBadRequest)
		return
	}
	select {
	case h.archives <- struct{}{}:
		defer func() { <-h.archives }()
	default:
		w.Header()["Retry-After"] = []string{"10"}
		respondStatus(w, r, http.StatusServiceUnavailable)
		return
	}
	files, err := h.below(r, name)
	switch {
	case errors.Is(err, errTooLarge):
		respondStatus(w, r, http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		respondStatus(w, r, http.StatusServiceUnavailable)
		return
	}
	base := path.Base("/" + strings.TrimSuffix(name, "/"))
	if base == "/" {
		base = "files"
	}
	header := w.Header()
	header["Content-Type"] = []string{types[kind]}
	header["Content-Disposition"] = []string{`attachment; filename="` + asciiName(base) + "." + kind + `"`}
	header["Cache-Control"] = []string{changingCache}
	header["X-Content-Type-Options"] = nosniff
	if r.Method == http.MethodHead {
		return
	}
	w.WriteHeader(http.StatusOK)
	if err := h.pack(w, r, newArchiver(kind, &endingWriter{w, time.Now().Add(archiveTime)}), files); err != nil {
		panic(http.ErrAbortHandler) // nobody shall take it for complete
	}
}

// endingWriter is a writer that fails after a time.
type endingWriter struct {
	io.Writer
	end time.Time
}

// Write implements [io.Writer].
func (u *endingWriter) Write(p []byte) (int, error) {
	if !time.Now().Before(u.end) {
		return 0, os.ErrDeadlineExceeded
	}
	return u.Writer.Write(p) //nolint:wrapcheck // as it is
}

// asciiName is a name that can stand in quotes in a header.
func asciiName(name string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return '_'
		}
		return c
	}, name)
}

// below lists the files in a folder and those below it.
func (h *Handler) below(r *http.Request, name string) (files []archived, err error) {
	left := int64(maxArchiveBytes)
	seen := 0
	top := folderName(name)
	err = h.trees.walk(top, func(t *tree, file string, d fs.DirEntry) error {
		switch seen++; {
		case r.Context().Err() != nil:
			return r.Context().Err()
		case seen > 2*maxArchived || len(files) > maxArchived || left < 0:
			return errTooLarge
		case file == top:
			return nil
		case !h.shown(file) && d.IsDir():
			return fs.SkipDir
		case !h.shown(file) || !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // gone meanwhile
		}
		left -= info.Size()
		files = append(files, archived{t, file, strings.TrimPrefix(file, strings.TrimPrefix(name, "/")), info.Size(), info.ModTime()})
		return nil
	})
	if err == nil && left < 0 {
		err = errTooLarge
	}
	return files, err //nolint:wrapcheck // the caller tells them apart
}

// pack writes the files. One that has changed meanwhile ends it: an archive's
// index says how long each is.
func (h *Handler) pack(w http.ResponseWriter, r *http.Request, to archiver, files []archived) error {
	for _, a := range files {
		if err := r.Context().Err(); err != nil {
			return err //nolint:wrapcheck // the connection is cut
		}
		f, info, err := a.tree.open(a.file)
		if errors.Is(err, errForbidden) {
			continue // as in a listing, of which it cannot be read either
		}
		if err != nil {
			return err
		}
		a.size = info.Size()
		part, err := to.add(a, h.typeOf(a.file).compressible)
		if err == nil {
			_, err = io.CopyN(part, f, a.size)
		}
		_ = f.Close() // read only
		if err != nil {
			return err //nolint:wrapcheck // as above
		}
	}
	return to.close()
}

func newArchiver(kind string, w io.Writer) archiver {
	if kind == "zip" {
		return zipper{zip.NewWriter(w)}
	}
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // a level that there is
	return tarrer{tar.NewWriter(z), z}
}

type zipper struct{ *zip.Writer }

func (z zipper) add(a archived, compressible bool) (io.Writer, error) {
	h := &zip.FileHeader{Name: a.name, Modified: a.date, Method: zip.Store}
	if compressible {
		h.Method = zip.Deflate
	}
	h.SetMode(0o644)
	return z.CreateHeader(h) //nolint:wrapcheck // the connection is cut
}

func (z zipper) close() error { return z.Close() }

type tarrer struct {
	*tar.Writer
	z *gzip.Writer
}

func (t tarrer) add(a archived, _ bool) (io.Writer, error) {
	return t.Writer, t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: a.name, Size: a.size, Mode: 0o644, ModTime: a.date.Truncate(time.Second)}) //nolint:wrapcheck // as above
}

func (t tarrer) close() error { return errors.Join(t.Close(), t.z.Close()) }
