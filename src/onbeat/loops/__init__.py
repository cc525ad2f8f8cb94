"""When things happen: one endless loop, and the steps that it repeats. They know when; the services know what."""
