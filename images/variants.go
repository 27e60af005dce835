package images

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"millrace/images/codec"
	"millrace/images/container"
	"millrace/images/convert"
	"millrace/static/original"
	"millrace/store"
	"millrace/store/disk"
)

const (
	// keyVersion changes when what is made under the same key changes.
	keyVersion = "1"
	// sharedTime bounds what a bucket may take: it is asked within a
	// conversion, and to convert again is the alternative.
	sharedTime = 5 * time.Second
	// keepTime bounds a write to the disk.
	keepTime = 30 * time.Second
	// refusedFor is how long nothing is converted for a folder that takes
	// nothing: the next one finds out whether there is room again.
	refusedFor = 20 * time.Second
)

// variantStore keeps variants: on this machine, and in a bucket that several
// machines share.
type variantStore struct {
	local  store.Store
	shared store.Store // nil for none
	owned  bool        // local was opened here
	scope  string

	mu      sync.Mutex
	refused error     // why the folder took nothing the last time; nil: it did
	until   time.Time // when it is tried again
}

// metaVersion is that of meta. From 2 on AVIFs are checked before they are kept, from
// 3 on WebPs are not turned by their EXIF.
const metaVersion = 3

// meta is what is kept beside a variant, as JSON.
type meta struct {
	Version  int    `json:"v"`
	Scope    string `json:"scope,omitempty"`
	Source   string `json:"source"` // the original's name
	Size     int64  `json:"size"`   // and identity
	Modified int64  `json:"modified"`
	Content  string `json:"version,omitempty"`

	Variant string `json:"variant"` // wanted.id
	Format  string `json:"format"`
	// Original says that the original is the smaller one: there is no body.
	Original bool    `json:"original,omitempty"`
	Best     bool    `json:"best,omitempty"` // made with the most effort
	Bytes    int64   `json:"bytes"`
	Width    int     `json:"width,omitempty"`
	Height   int     `json:"height,omitempty"`
	Tag      string  `json:"tag,omitempty"` // of the bytes
	Level    string  `json:"level,omitempty"`
	Lossless bool    `json:"lossless,omitempty"`
	CPU      float64 `json:"cpu_ms,omitempty"`
	Made     int64   `json:"made"` // Unix seconds
}

// ofFile reports whether the variant was made of the file as it is now.
func (m *meta) ofFile(f original.File) bool {
	return m.Source == f.Name && m.Size == f.Size && m.Modified == f.Modified.UnixNano() && m.Content == f.Version
}

// open opens the folder for variants if no store is given.
func (k *variantStore) open(o Options, d Deps) error {
	k.local, k.shared, k.scope = d.Store, d.Shared, d.Scope
	if k.local != nil {
		return nil
	}
	disk, err := OpenStore(o, d.Scope)
	if err != nil {
		return err
	}
	k.local, k.owned = disk, true
	return nil
}

func (k *variantStore) close() error {
	if !k.owned {
		return nil
	}
	return k.local.Close()
}

// Folder is where variants are kept: Options.Store, or a folder for the scope
// below the user's cache folder.
func (o Options) Folder(scope string) (string, error) {
	if o.Store != "" {
		return o.Store, nil
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("images: no folder to keep variants in; name one with images.store: %w", err)
	}
	sum := sha256.Sum256([]byte(scope))
	return filepath.Join(base, "millrace", "images", filepath.Base(scope)+"-"+base64.RawURLEncoding.EncodeToString(sum[:6])), nil
}

// OpenStore opens the folder for the variants of a scope. disk.ErrInUse, wrapped,
// when another process has it.
func OpenStore(o Options, scope string) (*disk.Store, error) {
	dir, err := o.Folder(scope)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, fmt.Errorf("images: the folder for variants: %w", err)
	}
	size := cmp.Or(o.StoreSize, disk.DefaultLimit)
	disk, err := disk.Open(disk.Options{Dir: dir, Limit: size})
	if err != nil {
		return nil, fmt.Errorf("images: the folder for variants: %w", err)
	}
	return disk, nil
}

// key is the key of a variant of a file as it is now. Nothing of it is read. A
// bucket has one prefix for each site instead of a scope: the machines may have
// their files in different folders.
func key(scope string, f original.File, id string) string {
	return "image" + keyVersion + "\x00" + scope + "\x00" + f.Name + "\x00" + strconv.FormatInt(f.Size, 10) + "-" +
		strconv.FormatInt(f.Modified.UnixNano(), 36) + "-" + f.Version + "\x00" + id
}

// find returns what is kept on this machine. The caller closes the object.
func (k *variantStore) find(ctx context.Context, f original.File, id string) (meta, *store.Object, error) {
	return get(ctx, k.local, key(k.scope, f, id), f)
}

func get(ctx context.Context, s store.Store, key string, f original.File) (meta, *store.Object, error) {
	o, err := s.Get(ctx, key)
	if err != nil {
		return meta{}, nil, err
	}
	var m meta
	if err := json.Unmarshal(o.Head, &m); err != nil || !m.ofFile(f) || m.Bytes != o.Size {
		_ = o.Close() // read only
		return meta{}, nil, fmt.Errorf("%w: the record beside %s is damaged", store.ErrNotFound, f.Name)
	}
	if err := m.check(o); err != nil {
		_ = o.Close()          // read only
		_ = s.Delete(ctx, key) // else the one that is made now replaces it
		return meta{}, nil, fmt.Errorf("%w: what was made of %s before cannot be shown: %w", store.ErrNotFound, f.Name, err)
	}
	return m, o, nil
}

// check looks at what an older version has kept: what was made of WebPs may be turned,
// and large AVIFs by libaom 3.6.0 are none that a browser shows.
func (m *meta) check(o *store.Object) error {
	switch {
	case m.Original:
		return nil
	case m.Version < 3 && strings.EqualFold(filepath.Ext(m.Source), ".webp"):
		return errors.New("it may be turned by an orientation that browsers ignore")
	case m.Version >= 2 || m.Format != string(codec.AVIF):
		return nil
	}
	file := make([]byte, o.Size)
	if n, err := o.Body.ReadAt(file, 0); int64(n) != o.Size {
		return fmt.Errorf("reading it: %w", err)
	}
	return container.CheckAVIF(file)
}

// fetch copies a variant that another machine has made to this one. It reports
// whether there was one.
func (k *variantStore) fetch(ctx context.Context, f original.File, id string) bool {
	if k.shared == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, sharedTime)
	defer cancel()
	m, o, err := get(ctx, k.shared, key("", f, id), f)
	if err != nil {
		return false // it is down, or does not have it: then it is converted here
	}
	defer func() { _ = o.Close() }() // read only
	body := make([]byte, o.Size)
	if n, err := o.Body.ReadAt(body, 0); int64(n) != o.Size || tagOf(body) != m.Tag && !m.Original {
		_ = err // whatever it was, the body is not whole
		return false
	}
	m.Scope = k.scope
	return put(ctx, k.local, key(k.scope, f, id), m, body) == nil
}

// save keeps a variant. Without an error it will be found; the bucket is filled
// as far as it can be.
func (k *variantStore) save(ctx context.Context, f original.File, id string, m meta, body []byte) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTime)
	defer cancel()
	if k.shared != nil {
		shared, end := context.WithTimeout(ctx, sharedTime)
		_ = put(shared, k.shared, key("", f, id), m, body) // the next machine converts it itself
		end()
	}
	m.Scope = k.scope
	err := put(ctx, k.local, key(k.scope, f, id), m, body)
	if err == nil {
		k.note(nil)
	}
	return err
}

// refusedForNow reports whether an error of the store says nothing of what was to
// be kept: the disk is full or cannot be written to, or the store is busy. What
// is larger than the store takes is none of these.
func refusedForNow(err error) bool {
	_, system := errors.AsType[syscall.Errno](err)
	return errors.Is(err, store.ErrDown) || errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrFull) && system
}

// note notes whether the folder took something. It reports whether this is the first
// refusal since it last did.
func (k *variantStore) note(err error) (first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err == nil:
		k.refused = nil
	case !errors.Is(err, errRefused) && refusedForNow(err) && !errors.Is(err, store.ErrBusy):
		first = k.refused == nil
		k.refused, k.until = err, time.Now().Add(refusedFor)
	}
	return first
}

// errRefused is the error of conversions that were not begun because their result
// could not be kept.
var errRefused = errors.New("not tried again yet")

// refusal says why nothing can be kept now, as far as is known.
func (k *variantStore) refusal() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refused == nil || time.Now().After(k.until) {
		return nil
	}
	return fmt.Errorf("%w: %w", errRefused, k.refused)
}

func put(ctx context.Context, s store.Store, key string, m meta, body []byte) error {
	head, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("the record of %s: %w", m.Source, err)
	}
	w, err := s.Create(ctx, key, int64(len(body)))
	if err != nil {
		return err
	}
	if _, err := w.Write(body); err != nil {
		_ = w.Abort() // nothing is left behind
		return err
	}
	return w.Commit(head)
}

// drop removes variants of a file as it was, and says how many there were on
// this machine.
func (k *variantStore) drop(ctx context.Context, f original.File, ids map[string]bool) (dropped int) {
	for id := range ids {
		o, err := k.local.Get(ctx, key(k.scope, f, id))
		if err != nil {
			continue
		}
		_ = o.Close() // read only
		if k.local.Delete(ctx, key(k.scope, f, id)) == nil {
			dropped++
		}
	}
	if k.shared == nil {
		return dropped
	}
	ctx, cancel := context.WithTimeout(ctx, sharedTime)
	defer cancel()
	for id := range ids {
		_ = k.shared.Delete(ctx, key("", f, id)) // its lifecycle rule does it otherwise
	}
	return dropped
}

// newMeta describes the result of a conversion.
func newMeta(f original.File, v wanted, r *convert.Result) meta {
	m := meta{Version: metaVersion, Source: f.Name, Size: f.Size, Modified: f.Modified.UnixNano(), Content: f.Version, Variant: v.id, Format: string(v.Format), Made: time.Now().Unix()}
	if r == nil {
		m.Original = true
		return m
	}
	m.Format = string(r.Format)
	m.Bytes, m.Width, m.Height, m.Level, m.Lossless = int64(len(r.Data)), r.Width, r.Height, r.Level, r.Lossless
	m.Tag, m.CPU = tagOf(r.Data), float64(r.CPU.Microseconds())/1000
	return m
}

// tagOf is the entity tag of a variant's bytes, made once, when they are.
func tagOf(body []byte) string {
	sum := sha256.Sum256(body)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}
