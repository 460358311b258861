"""The loop: composes the stages. Stages never import one another; what one needs from another is passed here."""
