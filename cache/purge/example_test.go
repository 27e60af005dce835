package purge_test

import (
	"fmt"

	"millrace/cache/purge"
)

func Example() {
	index := purge.New(0)

	// A fill: the moment is read before the origin is asked.
	o := purge.Object{URL: "https://example.com/posts/1", Tags: []string{"post-1", "front"}, At: index.Now()}
	var checked purge.Time
	fmt.Println(index.State(&o, &checked) == purge.Valid)

	index.Purge(purge.Selector{Tag: "front"})
	fmt.Println(index.State(&o, &checked) == purge.Stale)

	index.Purge(purge.Selector{Prefix: "example.com/posts/", Hard: true})
	fmt.Println(index.State(&o, &checked) == purge.Gone)

	// Output:
	// true
	// true
	// true
}
