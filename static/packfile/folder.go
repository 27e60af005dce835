package packfile

import (
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"millrace/internal/wire/negotiate"
)

// Folder is one root of a site as an [fs.FS]. Its files can be read at offsets.
type Folder struct {
	site  *Site
	files []File
}

// Folder is the root of that name, nil where the site has none.
func (s *Site) Folder(name string) *Folder {
	for _, r := range s.Roots {
		if r.Name == name {
			return &Folder{s, r.Files}
		}
	}
	return nil
}

// Descriptor is the open file that all bodies lie in. It stays the site's.
func (f *Folder) Descriptor() *os.File { return f.site.file }

// Body is one encoding of a file. ok is false where there is none.
func (f *Folder) Body(name string, c negotiate.Coding) (b Body, ok bool) {
	if i, found := f.find(name); found {
		b = f.files[i].Bodies[c]
	}
	return b, b.Offset != 0
}

// Check is [Site.Check].
func (f *Folder) Check(b Body) error { return f.site.Check(b) }

// find is the place of a name, or where it would be.
func (f *Folder) find(name string) (int, bool) {
	return slices.BinarySearchFunc(f.files, name, func(one File, name string) int { return strings.Compare(one.Name, name) })
}

// below are the files in a folder and those below it.
func (f *Folder) below(dir string) []File {
	if dir == "." {
		return f.files
	}
	first, _ := f.find(dir + "/")
	last, _ := f.find(dir + "0") // what follows the slash
	return f.files[first:last]
}

// Stat implements [fs.StatFS].
func (f *Folder) Stat(name string) (fs.FileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrInvalid}
	}
	if i, ok := f.find(name); ok {
		return &info{name: path.Base(name), file: &f.files[i]}, nil
	}
	if name == "." || len(f.below(name)) > 0 {
		return &info{name: path.Base(name)}, nil
	}
	return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
}

// Open implements [fs.FS]. A file's content is checked before it is given out.
func (f *Folder) Open(name string) (fs.File, error) {
	found, err := f.Stat(name)
	if err != nil {
		return nil, err
	}
	i := found.(*info)
	if i.file == nil {
		list, err := f.ReadDir(name)
		return &opened{info: i, list: list}, err
	}
	b := i.file.Bodies[negotiate.Identity]
	if err := f.Check(b); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &content{io.NewSectionReader(f.site.file, b.Offset, b.Size), i}, nil
}

// ReadDir implements [fs.ReadDirFS].
func (f *Folder) ReadDir(name string) (list []fs.DirEntry, err error) {
	found, err := f.Stat(name)
	if err == nil && !found.IsDir() {
		err = &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrInvalid}
	}
	if err != nil {
		return nil, err
	}
	prefix := ""
	if name != "." {
		prefix = name + "/"
	}
	files := f.below(name)
	for i := range files {
		rest := files[i].Name[len(prefix):]
		first, _, deeper := strings.Cut(rest, "/")
		one := &info{name: first, file: &files[i]}
		if deeper {
			one.file = nil
		}
		if n := len(list); n > 0 && list[n-1].Name() == first {
			continue
		}
		list = append(list, fs.FileInfoToDirEntry(one))
	}
	// "a-b" stands before "a/b" in the index, but behind the folder "a".
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
}

// info implements [fs.FileInfo] for a file, and for a folder where file is nil.
type info struct {
	name string
	file *File
}

func (i *info) Name() string { return i.name }
func (i *info) IsDir() bool  { return i.file == nil }
func (i *info) Sys() any     { return nil }

func (i *info) Size() int64 {
	if i.file == nil {
		return 0
	}
	return i.file.Bodies[negotiate.Identity].Size
}

func (i *info) Mode() fs.FileMode {
	if i.file == nil {
		return fs.ModeDir | 0o555
	}
	return 0o444
}

func (i *info) ModTime() time.Time {
	if i.file == nil {
		return time.Time{}
	}
	return time.Unix(i.file.Modified, 0)
}

// content is an open file.
type content struct {
	*io.SectionReader
	info *info
}

func (c *content) Stat() (fs.FileInfo, error) { return c.info, nil }
func (c *content) Close() error               { return nil }

// opened is an open folder.
type opened struct {
	info *info
	list []fs.DirEntry
}

func (o *opened) Stat() (fs.FileInfo, error) { return o.info, nil }
func (o *opened) Close() error               { return nil }

func (o *opened) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: o.info.name, Err: fs.ErrInvalid}
}

// ReadDir implements [fs.ReadDirFile].
func (o *opened) ReadDir(n int) ([]fs.DirEntry, error) {
	if n > 0 && len(o.list) == 0 {
		return nil, io.EOF
	}
	if n <= 0 || n > len(o.list) {
		n = len(o.list)
	}
	list := o.list[:n:n]
	o.list = o.list[n:]
	return list, nil
}
