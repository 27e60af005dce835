package purge_test

import (
	"fmt"

	"millrace/cache/purge"
)

func Example() {
	book := purge.New(0)

	// A fill: the moment is read before the origin is asked.
	o := purge.Object{URL: "https://example.com/posts/1", Tags: []string{"post-1", "front"}, At: book.Now()}
	var checked purge.Time
	fmt.Println(book.State(&o, &checked) == purge.Valid)

	book.Purge(purge.Selector{Tag: "front"})
	fmt.Println(book.State(&o, &checked) == purge.Stale)

	book.Purge(purge.Selector{Prefix: "example.com/posts/", Hard: true})
	fmt.Println(book.State(&o, &checked) == purge.Gone)

	// Output:
	// true
	// true
	// true
}
