// Package packer makes packed files: it walks a site's folders, compresses what
// pays, and writes what package packfile describes. The same folders make the
// same bytes.
package packer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"millrace/internal/wire/compress"
	"millrace/internal/wire/negotiate"
	"millrace/static/packfile"
)

// Folder is one folder to pack, and how it is served.
type Folder struct {
	Name string // as the config has it
	Dir  string // where it is on disk

	// Takes says which files are packed, by their name below Dir; Enters the
	// same of folders. Nil: all.
	Takes, Enters func(name string) bool
	// Type is a file's media type, and whether such files are compressed.
	Type func(name string) (mime string, compressible bool)
	// NoPrecompressed ignores files named like another with .br, .zst or .gz
	// appended, NoCompress makes no encodings.
	NoPrecompressed, NoCompress bool

	// Variants is a folder with what was made of these files, which is packed
	// with them as it is, below the path Below; "" for none.
	Variants, Below string
}

// variants is the folder of what was made of the files; ok is false for none.
func (f Folder) variants() (made Folder, ok bool) {
	return Folder{Dir: f.Variants, Type: f.Type, NoPrecompressed: true, NoCompress: true}, f.Variants != ""
}

// Plan is what is to be packed.
type Plan struct {
	Base    string // the program to copy
	Out     string // the file to write; what is there is replaced
	Config  []byte
	Slim    []byte // packfile.Index.Plan
	Folders []Folder

	// Progress is called after each file, and Warn about what is left out. Each
	// may be nil.
	Progress func(done, total int)
	Warn     func(text string)
}

// Summary is what was packed.
type Summary struct {
	Files int
	Plain int64 // bytes of the files as they are
	Size  int64 // bytes of the packed file
}

const (
	// maxCompressed is the largest file, in bytes, that is compressed: brotli's
	// best level takes some ten seconds for it.
	maxCompressed = 16 << 20
	// maxTries bounds how often a file is read that changes meanwhile.
	maxTries = 3
	// executable is the mode of what is written.
	executable = 0o755
)

// Make packs. The file is written beside its place and renamed: it is there
// whole or not at all.
func Make(ctx context.Context, p Plan) (sum Summary, err error) {
	base, err := os.Open(p.Base)
	if err != nil {
		return sum, fmt.Errorf("opening the base program: %w", err)
	}
	defer base.Close()
	out, err := os.CreateTemp(filepath.Dir(p.Out), "."+filepath.Base(p.Out)+".*")
	if err != nil {
		return sum, fmt.Errorf("writing beside %s: %w", p.Out, err)
	}
	defer func() {
		if err != nil {
			_ = out.Close() // the first error says more
			_ = os.Remove(out.Name())
		}
	}()
	if sum, err = p.write(ctx, base, out); err != nil {
		return sum, err
	}
	if err = out.Chmod(executable); err == nil {
		err = out.Sync()
	}
	if err == nil {
		err = out.Close()
	}
	if err == nil {
		err = os.Rename(out.Name(), p.Out)
	}
	if err != nil {
		return sum, fmt.Errorf("writing %s: %w", p.Out, err)
	}
	return sum, nil
}

// write writes the whole file.
func (p *Plan) write(ctx context.Context, base, out *os.File) (sum Summary, err error) {
	w, err := packfile.NewWriter(out, base)
	if err != nil {
		return sum, fmt.Errorf("writing %s: %w", p.Out, err)
	}
	index := packfile.Index{Config: p.Config, Plan: p.Slim}
	var parts []part
	for i, folder := range p.Folders {
		parts = append(parts, part{folder: folder, root: i})
		if made, ok := folder.variants(); ok {
			parts = append(parts, part{folder: made, root: i, below: folder.Below})
		}
		index.Roots = append(index.Roots, packfile.Root{Name: folder.Name})
	}
	for i := range parts {
		if parts[i].names, err = p.list(parts[i].folder, out); err != nil {
			return sum, err
		}
		sum.Files += len(parts[i].names)
	}
	done := 0
	for _, part := range parts {
		to := &index.Roots[part.root]
		err := part.pack(ctx, w, func(file packfile.File) {
			to.Files = append(to.Files, file)
			sum.Plain += file.Bodies[negotiate.Identity].Size
			if done++; p.Progress != nil {
				p.Progress(done, sum.Files)
			}
		})
		if err != nil {
			return sum, err
		}
	}
	for _, r := range index.Roots {
		slices.SortStableFunc(r.Files, func(a, b packfile.File) int { return strings.Compare(a.Name, b.Name) })
	}
	if sum.Size, err = w.Finish(index); err != nil {
		return sum, fmt.Errorf("writing %s: %w", p.Out, err)
	}
	return sum, nil
}

// part is a folder on disk, and where its files go.
type part struct {
	folder Folder
	root   int    // of the index
	below  string // what their names begin with there
	names  []string
}

// pack adds all files of the part.
func (p *part) pack(ctx context.Context, w *packfile.Writer, added func(packfile.File)) error {
	root, err := os.OpenRoot(p.folder.Dir)
	if err != nil {
		return fmt.Errorf("opening the folder %s: %w", p.folder.Dir, err)
	}
	defer func() { _ = root.Close() }() // read only
	return eachPacked(ctx, root, p.folder, p.names, func(f *packed) error {
		file, err := f.add(w, root)
		if err != nil {
			return fmt.Errorf("packing %s: %w", packfile.Shown(filepath.Join(p.folder.Dir, f.name)), err)
		}
		file.Name = p.below + file.Name
		added(file)
		return nil
	})
}

// packed is a file on its way into the packed one.
type packed struct {
	name  string
	kind  string
	info  fs.FileInfo
	plain []byte // nil: too large to hold
	made  [negotiate.Codings][]byte
	err   error
	ready chan struct{} // closed when it may be added
}

// eachPacked reads and compresses files on all cores, and calls add for each of
// them in order. Not many more are held than there are cores.
func eachPacked(ctx context.Context, root *os.Root, folder Folder, names []string, add func(*packed) error) error {
	ctx, stop := context.WithCancel(ctx)
	workers := runtime.GOMAXPROCS(0)
	order, work := make(chan *packed, workers), make(chan *packed)
	ended := make(chan struct{}, workers+1)
	go func() { // ends with the names or with ctx; waited for below, as the workers
		defer func() { ended <- struct{}{} }()
		defer close(order)
		defer close(work)
		for _, name := range names {
			f := &packed{name: name, ready: make(chan struct{})}
			for _, to := range []chan *packed{order, work} {
				select {
				case to <- f:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	for range workers {
		go func() {
			defer func() { ended <- struct{}{} }()
			var tools compress.Tools
			for f := range work {
				f.err = f.read(ctx, root, folder, &tools)
				close(f.ready)
			}
		}()
	}
	defer func() {
		stop()
		for range workers + 1 {
			<-ended
		}
	}()
	for f := range order {
		select {
		case <-f.ready:
		case <-ctx.Done():
			return ctx.Err()
		}
		if f.err != nil {
			return fmt.Errorf("packing %s: %w", packfile.Shown(filepath.Join(folder.Dir, f.name)), f.err)
		}
		if err := add(f); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// errMoving is what a file ends in that does not hold still.
var errMoving = errors.New("it changes while it is read: pack a copy of the folder")

// open opens a regular file below the root.
func open(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	f, err := root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file any more")
	}
	if err != nil {
		_ = f.Close() // read only
	}
	return f, info, err
}

// same reports whether a file is still what it was.
func same(f *os.File, was fs.FileInfo) bool {
	now, err := f.Stat()
	return err == nil && now.Size() == was.Size() && now.ModTime().Equal(was.ModTime())
}

// read reads the file and makes its encodings.
func (p *packed) read(ctx context.Context, root *os.Root, folder Folder, tools *compress.Tools) error {
	compressible := false
	if folder.Type != nil {
		p.kind, compressible = folder.Type(p.name)
	}
	var siblings [negotiate.Codings][]byte
	for try := 1; ; try++ {
		f, info, err := open(root, p.name)
		if err != nil {
			return err
		}
		p.info = info
		if info.Size() > maxCompressed {
			return f.Close() // it is read when it is written
		}
		p.plain, err = io.ReadAll(io.LimitReader(f, maxCompressed+1))
		held := same(f, info) && int64(len(p.plain)) == info.Size()
		_ = f.Close() // read only
		if err != nil {
			return err
		}
		if held {
			break
		}
		if try == maxTries {
			return errMoving
		}
	}
	if !folder.NoPrecompressed {
		siblings = precompressed(root, p.name, p.info)
	}
	for c := negotiate.Gzip; c < negotiate.Codings; c++ {
		switch {
		case siblings[c] != nil:
			p.made[c] = siblings[c]
		case compressible && !folder.NoCompress && len(p.plain) >= compress.MinSize:
			made, err := tools.Pack(c, compress.Ahead, p.plain, ctx.Done())
			if err != nil {
				return err
			}
			if compress.Pays(len(p.plain), len(made)) {
				p.made[c] = made
			}
		}
	}
	return nil
}

// endings are what precompressed files have appended to their name.
var endings = [negotiate.Codings]string{negotiate.Gzip: ".gz", negotiate.Zstd: ".zst", negotiate.Brotli: ".br"}

// precompressed are the encodings that stand beside a file and are not older,
// by more than the second that package static allows.
func precompressed(root *os.Root, name string, plain fs.FileInfo) (all [negotiate.Codings][]byte) {
	for c := negotiate.Gzip; c < negotiate.Codings; c++ {
		const allowed = 1e9
		f, info, err := open(root, name+endings[c])
		if err != nil {
			continue // there is none
		}
		if info.Size() > 0 && info.Size() <= maxCompressed && plain.ModTime().Sub(info.ModTime()) <= allowed {
			b, err := io.ReadAll(io.LimitReader(f, maxCompressed))
			if err == nil && same(f, info) && int64(len(b)) == info.Size() {
				all[c] = b
			}
		}
		_ = f.Close() // read only
	}
	return all
}

// add writes the file's bodies.
func (p *packed) add(w *packfile.Writer, root *os.Root) (out packfile.File, err error) {
	out = packfile.File{Name: strings.Clone(p.name), Type: p.kind, Modified: p.info.ModTime().Unix()}
	if p.info.Size() > maxCompressed {
		out.Bodies[negotiate.Identity], err = p.stream(w, root)
		return out, err
	}
	if out.Bodies[negotiate.Identity], err = w.Add(p.plain); err != nil {
		return out, err
	}
	for c, made := range p.made {
		if made == nil {
			continue
		}
		if out.Bodies[c], err = w.Add(made); err != nil {
			return out, err
		}
	}
	return out, nil
}

// stream copies a file that is too large to hold. One that changes meanwhile
// ends it all: what was written of it cannot be taken back.
func (p *packed) stream(w *packfile.Writer, root *os.Root) (b packfile.Body, err error) {
	f, info, err := open(root, p.name)
	if err != nil {
		return b, err
	}
	defer f.Close()
	b, err = w.Copy(f, p.info.Size())
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return b, errMoving
	case err == nil && (!same(f, p.info) || !same(f, info)):
		return b, errMoving
	}
	return b, err
}
