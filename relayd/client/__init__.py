"""What workers and controllers import: an async client (Trio and asyncio) and a plain synchronous one."""
