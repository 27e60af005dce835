package former

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"millrace/lab/load/client"
)

// Assets are what the page of [PageFiles] has beside its HTML: every third a
// script, the others images.
const Assets = 30

// PageFiles are a page and its assets, of 0.6 to 34 KB; the HTML is the first.
func PageFiles() []File {
	files := []File{{Name: "page/index.html", Path: "/page/", Size: 8000}}
	for i := range Assets {
		kind := "png"
		if i%3 == 0 {
			kind = "js"
		}
		name := fmt.Sprintf("page/asset-%d.%s", i, kind)
		files = append(files, File{Name: name, Path: "/" + name, Size: 600 + 40*i*i})
	}
	return files
}

// ErrAnswer is an answer that is not what was asked for.
var ErrAnswer = errors.New("no page")

// View asks for the page of [PageFiles], whose paths the connection has in that
// order, as a browser does over one connection: the HTML, and when that has come all
// assets at once.
func View(ctx context.Context, conn client.Conn) error {
	if err := Ask(ctx, conn, 0); err != nil {
		return err
	}
	return Each(Assets, Assets, func(i int) error { return Ask(ctx, conn, i+1) })
}

// Ask asks for one of a connection's paths.
func Ask(ctx context.Context, conn client.Conn, path int) error {
	a, err := conn.Do(ctx, path, nil)
	if err == nil && (a.Status != http.StatusOK || a.Body == 0) {
		err = fmt.Errorf("%w: status %d, %d bytes", ErrAnswer, a.Status, a.Body)
	}
	return err
}
