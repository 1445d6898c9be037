package content

import (
	"strconv"
	"sync"
)

// document is a body as one JSON value. What filters ask for is found once, whatever the
// number of their conditions and of webhooks. Safe for concurrent use.
type document struct {
	raw []byte

	mu   sync.Mutex
	root node
}

func newDocument(body []byte) *document {
	raw := jsonDocument(body)
	if raw == nil {
		return nil
	}
	return &document{raw: raw, root: node{raw: raw}}
}

// find follows a path; nil when it leads nowhere.
func (d *document) find(path []string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := &d.root
	for _, name := range path {
		if at = at.child(name); at == nil {
			return nil
		}
	}
	return at.raw
}

// node is a value, with what is directly within it once somebody has asked for that.
type node struct {
	raw     []byte
	read    bool
	members map[string]*node // of several of a name the last
	list    []*node
}

func (n *node) child(name string) *node {
	if !n.read {
		n.read = true
		n.members = map[string]*node{}
		for key, value := range members(n.raw) {
			if text, ok := unquote(key); ok {
				n.members[text] = &node{raw: value}
			}
		}
		for value := range elements(n.raw) {
			n.list = append(n.list, &node{raw: value})
		}
	}
	if n.raw[0] != '[' {
		return n.members[name]
	}
	index, err := strconv.Atoi(name)
	if err != nil || strconv.Itoa(index) != name || index < 0 || index >= len(n.list) {
		return nil
	}
	return n.list[index]
}
