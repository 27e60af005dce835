package images

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"millrace/static/original"
	"millrace/store/memory"
)

// TestForm: what is kept beside a variant is found and read as it always was: machines of
// two versions share a bucket while they are upgraded, and a disk outlives the upgrade.
func TestForm(t *testing.T) {
	const form = `{"v":3,"scope":"/srv/site","source":"a.jpg","size":7,"modified":1700000000000000000,"version":"x","variant":"w320-q70","format":"webp",` +
		`"best":true,"bytes":4,"width":320,"height":200,"tag":"T","level":"5","lossless":true,"cpu_ms":1.5,"made":1700000001}`
	f := original.File{Name: "a.jpg", Size: 7, Modified: time.Unix(1_700_000_000, 0), Version: "x"}
	const name = "image1\x00/srv/site\x00a.jpg\x007-cwyvpelgpse8-x\x00w320-q70"
	if got := key("/srv/site", f, "w320-q70"); got != name {
		t.Errorf("the key is %q, and was %q", got, name)
	}
	s := memory.New(1 << 20)
	w, err := s.Create(context.Background(), name, 4)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("RIFF")); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit([]byte(form)); err != nil {
		t.Fatal(err)
	}
	m, o, err := get(context.Background(), s, name, f)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if again, err := json.Marshal(m); err != nil || !bytes.Equal(again, []byte(form)) {
		t.Errorf("it is written as\n%s\nand was\n%s\n%v", again, form, err)
	}
}
