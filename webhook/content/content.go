// Package content is what is in a message: an event or plain bytes, which of them a webhook
// takes, and the form in which it gets them. It is pure, and sends nothing.
package content

// Content is a message's body as filters and formats see it. It is read once per
// message, whatever the number of webhooks.
type Content struct {
	// Body and ContentType are the message's, untouched.
	Body        []byte
	ContentType string
	// Event is what the body says as a CloudEvents event; nil when it is none.
	Event *Event
	// grid is what it says in Event Grid's own schema; nil when it is not in that, or a
	// CloudEvents event.
	grid *Event
	// document is the body as one JSON value.
	document *document
}

// Read reads a body; it never fails and never changes it. What is no event and no
// JSON is just bytes. The body must not be changed as long as the Content is used.
func Read(body []byte, contentType string) Content {
	c := Content{Body: body, ContentType: contentType, document: &document{body: body}}
	if mayHoldEvent(body, contentType) {
		if e, ok := eventOf(c.document.json()); ok {
			c.Event = &e
		}
	}
	if c.Event == nil && mayHoldGridEvent(body) {
		c.grid = gridEvent(c.document.json())
	}
	return c
}

// named is what filters by type, source and subject look at; nil when the body names none.
func (c *Content) named() *Event {
	if c.Event != nil {
		return c.Event
	}
	return c.grid
}
