package images

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/internal/process/servertest"
	"millrace/store/disk"
)

// TestKeptAndUnmade: what there is of which image, and why there is not more, also after a
// restart.
func TestKeptAndUnmade(t *testing.T) {
	dir := t.TempDir()
	kept, err := disk.Open(disk.Options{Dir: filepath.Join(t.TempDir(), "kept"), Limit: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() })
	c := newFake(bothTools)
	c.failing = func(_ []byte, s convert.Spec) error {
		if s.Format == codec.AVIF {
			return fmt.Errorf("%w: no colours", codec.ErrFailed)
		}
		return nil
	}
	r := newRigIn(t, Options{NoBest: true}, c, dir, kept, nil)
	r.write("a/one.jpg", photo(t, 64, 48, 1), time.Hour)
	r.write("b/two.jpg", photo(t, 64, 48, 2), time.Hour)
	r.write("b/bad.jpg", []byte("no image"), time.Hour)
	for _, path := range []string{"/a/one.jpg", "/b/two.jpg", "/b/bad.jpg"} {
		r.get(path, "image/avif,image/webp")
	}
	servertest.Eventually(t, "all that can be made is", func() bool {
		list, _, err := r.Kept(t.Context(), "", 10)
		return err == nil && len(list) == 2 && len(r.Unmade("", 10)) == 3
	})
	list, more, err := r.Kept(t.Context(), "one", 10)
	if err != nil || more || len(list) != 1 || list[0].Original != "a/one.jpg" || list[0].Format != "webp" || list[0].Width != 8 ||
		list[0].Bytes == 0 || list[0].Bytes >= list[0].OriginalBytes || time.Since(list[0].Made) > time.Minute {
		t.Errorf("of one.jpg there is %+v, %t, %v", list, more, err)
	}
	if list, more, _ := r.Kept(t.Context(), "", 1); len(list) != 1 || !more {
		t.Errorf("one of two is %+v, %t", list, more)
	}
	said := fmt.Sprintf("%+v", r.Unmade("b/", 10))
	for _, part := range []string{"b/bad.jpg", "Cause:not an image", "b/two.jpg", "Format:avif", "Cause:encoder", "no colours"} {
		if !strings.Contains(said, part) {
			t.Errorf("%q is not in %s", part, said)
		}
	}
	if strings.Contains(said, "one.jpg") || len(r.Unmade("", 2)) != 2 {
		t.Errorf("of folder b there is not made: %s", said)
	}
	again := newRigIn(t, Options{NoBest: true}, c, dir, kept, nil)
	if list, _, err := again.Kept(t.Context(), "", 10); err != nil || len(list) != 2 {
		t.Errorf("after a restart there is %+v, %v", list, err)
	}
	if r.Full() || r.Refusal() != nil {
		t.Error("the store has room")
	}
}
